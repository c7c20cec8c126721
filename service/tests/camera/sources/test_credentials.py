import pytest

from embereye.camera.sources.credentials import VARIABLE, Mounted, credentials_of
from embereye.camera.sources.declared import SourceError, parse_source

DECLARED = parse_source("rtsp://me:own@cam/1")


@pytest.fixture
def secret(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    folder = tmp_path / "gate"
    folder.mkdir()
    (folder / "username").write_text("admin\n")
    (folder / "password").write_text("s3 cret")
    return folder


def test_a_secret_overrides_the_sources_credentials_and_is_read_every_time(secret):
    credentials = credentials_of(DECLARED, "gate")
    assert credentials() == ("admin", "s3 cret")
    (secret / "password").write_text("changed")
    assert credentials() == ("admin", "changed")
    assert credentials_of(DECLARED, "")() == ("me", "own")


def test_a_refused_password_is_followed_by_the_next_one_and_back(secret):
    credentials, other = credentials_of(DECLARED, "gate"), credentials_of(parse_source("rtsp://yard/1"), "gate")
    assert isinstance(credentials, Mounted)
    (secret / "password-next").write_text("new word\n")
    assert credentials() == ("admin", "s3 cret")
    credentials.refuse(("admin", "s3 cret"))
    assert credentials() == ("admin", "new word")
    assert other() == ("admin", "s3 cret")  # each host accepts its own
    credentials.refuse(("admin", "new word"))
    assert credentials() == ("admin", "s3 cret")
    (secret / "username-next").write_text("ember")
    credentials.refuse(("admin", "s3 cret"))
    assert credentials() == ("ember", "new word")


@pytest.mark.parametrize(
    ("name", "spoil", "text"),
    [
        ("none", lambda _: None, "none/username: does not exist. Create it, or mount the Secret"),
        ("../gate", lambda _: None, "not the name of a Secret"),
        ("gate", lambda folder: (folder / "password").unlink(), "gate/password: does not exist"),
        ("gate", lambda folder: (folder / "password").write_bytes(b"\xff\xfe"), "password is not UTF-8 text"),
        ("gate", lambda folder: (folder / "username").write_text("a\r\nInjected: b"), "control characters"),
        ("gate", lambda folder: (folder / "password").write_text("x" * 2000), "longer than 1024 bytes"),
    ],
)
def test_an_unusable_secret_is_reported_without_its_content(secret, name, spoil, text):
    spoil(secret)
    with pytest.raises(SourceError) as caught:
        credentials_of(DECLARED, name)()
    assert text in str(caught.value)
    assert "s3 cret" not in str(caught.value)


def test_without_a_folder_of_secrets_the_variable_is_named(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SourceError, match=VARIABLE):
        credentials_of(DECLARED, "gate")()
