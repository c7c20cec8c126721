"""A camera's user and password, from a mounted Secret read at every dial, or from the source itself.

A Secret may have two pairs, so that a password changes without a gap: `process/login_folder.py`. The pair that a host
refused last is not the one that is sent to it next.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from embereye.camera.sources.declared import DeclaredSource, SourceError
from embereye.process.login_folder import Pair, choose, read_pairs

VARIABLE = "EMBEREYE_CREDENTIALS"  # the folder with one mounted folder per Secret
MAX_BYTES = 1024  # of one key of a Secret

Credentials = Callable[[], Pair]  # raises SourceError if unavailable
_refused: dict[tuple[str, str], Pair] = {}  # by Secret and host, for all streams of this process


def credentials_of(declared: DeclaredSource, secret: str) -> Credentials:
    """Return a function for the user and password of a source; `secret` names a Secret, empty: those in the source."""
    if not secret:
        return lambda: (declared.user, declared.password)
    return Mounted(secret, urlsplit(declared.address).hostname or "" if "://" in declared.address else "")


@dataclass(frozen=True)
class Mounted:
    """The pairs in a Secret, for one host. Call it for the pair to send."""

    secret: str
    host: str

    def __call__(self) -> Pair:
        """The pair to send now; SourceError if the Secret cannot be read."""
        return choose(_mounted(self.secret, os.environ.get(VARIABLE, "")), _refused.get((self.secret, self.host)))

    def refuse(self, pair: Pair) -> None:
        """Note that the host refused `pair`."""
        _refused[self.secret, self.host] = pair


def _mounted(secret: str, folder: str) -> list[Pair]:
    if not folder:
        raise SourceError(f'Secret "{secret}": {VARIABLE} is not set to the folder with the mounted Secrets')
    if "/" in secret or secret in {"", ".", ".."}:
        raise SourceError(f'"{secret}": not the name of a Secret')
    return read_pairs(Path(folder) / secret, _read)


def _read(file: Path) -> str:
    secret, key = file.parent.name, file.name
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SourceError(f"credentialsRef {secret}: {file}: does not exist. Create it, or mount the Secret") from error
    except OSError as error:
        raise SourceError(f'Secret "{secret}": {key} cannot be read: {error.strerror}') from error
    try:
        # Secrets made with echo end in a line feed that belongs to no password.
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(f'Secret "{secret}": {key} is not UTF-8 text') from error
    if len(content) > MAX_BYTES or not text.isprintable():
        raise SourceError(f'Secret "{secret}": {key} is longer than {MAX_BYTES} bytes or contains control characters')
    return text
