"""A camera's user and password, from a mounted Secret read at every dial, or from the source itself."""

import os
from collections.abc import Callable
from pathlib import Path

from embereye.camera.sources.declared import DeclaredSource, SourceError

VARIABLE = "EMBEREYE_CREDENTIALS"  # the folder with one mounted folder per Secret
MAX_BYTES = 1024  # of one key of a Secret

Credentials = Callable[[], tuple[str, str]]  # user and password; raises SourceError if unavailable


def credentials_of(declared: DeclaredSource, secret: str) -> Credentials:
    """Return a function for the user and password of a source; `secret` names a Secret, empty: those in the source."""
    if not secret:
        return lambda: (declared.user, declared.password)
    return lambda: _mounted(secret, os.environ.get(VARIABLE, ""))


def _mounted(secret: str, folder: str) -> tuple[str, str]:
    if not folder:
        raise SourceError(f'Secret "{secret}": {VARIABLE} is not set to the folder with the mounted Secrets')
    if "/" in secret or secret in {"", ".", ".."}:
        raise SourceError(f'"{secret}": not the name of a Secret')
    return _read(folder, secret, "username"), _read(folder, secret, "password")


def _read(folder: str, secret: str, key: str) -> str:
    try:
        with (Path(folder) / secret / key).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SourceError(
            f"credentialsRef {secret}: {Path(folder) / secret / key}: does not exist. Create it, or mount the Secret"
        ) from error
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
