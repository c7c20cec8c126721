"""The authorities that TLS clients trust."""

import contextlib
import ssl
from pathlib import Path

import pytest
from harness.servers.certificates import SiteAuthority

from embereye.process.lifecycle import UserError
from embereye.process.tls.client import ClientTls
from embereye.process.tls.folder import ServerTls
from embereye.process.tls.trust import trusting


def test_self_made_certificates_are_accepted_with_newer_pythons_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = ssl.create_default_context

    def newer(*, cafile: str | None) -> ssl.SSLContext:
        context = make(cafile=cafile)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT  # as from 3.13 on
        return context

    monkeypatch.setattr(ssl, "create_default_context", newer)
    context = trusting()
    assert not context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_an_authority_is_trusted_without_its_issuer(tmp_path: Path) -> None:
    floor = SiteAuthority(tmp_path, "a floor", above=SiteAuthority(tmp_path, "a site"))
    folder = floor.issue("sensor", alternatives=["localhost"]).folder
    client = trusting(folder / "ca.crt")
    client.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialling = client.wrap_bio(down, up, server_hostname="localhost")
    accepting = ServerTls(folder, folder).context().wrap_bio(up, down, server_side=True)
    for side in (dialling, accepting) * 4:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert (dialling.version(), accepting.version()) == ("TLSv1.3", "TLSv1.3")
    assert accepting.getpeercert()


@pytest.mark.parametrize("name", ["", "not there"], ids=["an empty folder", "none"])
def test_a_folder_without_an_authority_does_not_mean_the_systems_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"contains neither ca\.crt nor tls\.crt"):
        ClientTls.in_folder(tmp_path / name)
