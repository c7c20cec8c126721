"""A process reads its certificate in spite of other problems of its machine."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from harness.servers.certificates import SiteAuthority

from embereye.process.identity.authority import Authority, utc_now
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, Role
from embereye.process.tls.folder import ServerTls


async def test_a_process_starts_even_if_no_temporary_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = Identity(Role.SHARD, "default", "s-0", "default/sensors/s")
    for name, content in Authority.create(utc_now()).issue(identity, utc_now()).files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    assert Credentials(tmp_path).identity == identity
    tls = ServerTls(tmp_path, tmp_path)
    tls.reload()
    assert not tls.failing


def test_comments_in_certificate_files_may_have_any_characters(tmp_path: Path) -> None:
    folder = SiteAuthority(tmp_path).issue("hub").folder
    for file in (folder / "tls.crt", folder / "ca.crt"):
        file.write_bytes("friendlyName: Brandmeldeanlage Süd\n".encode() + file.read_bytes())
    tls = ServerTls(folder, folder)
    tls.reload()
    assert not tls.failing


READERS = ("tls.client import ClientTls; ClientTls(None, folder / 'tls.crt', folder / 'tls.key').check()",
           "tls.folder import ServerTls; ServerTls(folder)")  # fmt: skip


@pytest.mark.parametrize("reader", READERS, ids=["who dials", "who is dialled"])
def test_an_encrypted_key_is_refused_without_asking_for_a_password(tmp_path: Path, reader: str) -> None:
    folder = SiteAuthority(tmp_path).issue("hub").folder
    key = serialization.load_pem_private_key((folder / "tls.key").read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    (folder / "tls.key").write_bytes(pem)
    code = f"import pathlib, sys; folder = pathlib.Path(sys.argv[1]); from embereye.process.{reader}"
    ran = subprocess.run(
        [sys.executable, "-c", code, folder],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, start_new_session=True,
    )  # fmt: skip
    assert "pass phrase" not in ran.stderr
    assert "UserError" in ran.stderr
    assert "the key is encrypted with a password" in ran.stderr
