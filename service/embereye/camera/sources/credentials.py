"""A camera's user and password: from a mounted Secret, read at every dial, or else from the source itself."""

import os
from collections.abc import Callable
from pathlib import Path

from embereye.camera.sources.declared import DeclaredSource, SourceError

VARIABLE = "EMBEREYE_CREDENTIALS"  # the folder that Secrets are mounted in, one folder each
MAX_BYTES = 1024  # of one key of a Secret

Credentials = Callable[[], tuple[str, str]]  # user and password; SourceError where they cannot be had


def credentials_of(what: DeclaredSource, secret: str) -> Credentials:
    """A function that returns the user and password of `what`; `secret` names a Secret, empty: those in the source."""
    if not secret:
        return lambda: (what.user, what.password)
    return lambda: _mounted(secret, os.environ.get(VARIABLE, ""))


def _mounted(secret: str, folder: str) -> tuple[str, str]:
    if not folder:
        raise SourceError(f'Secret "{secret}": {VARIABLE} does not say where Secrets are mounted')
    if "/" in secret or secret in {"", ".", ".."}:
        raise SourceError(f'"{secret}" is not the name of a Secret')
    return _read(folder, secret, "username"), _read(folder, secret, "password")


def _read(folder: str, secret: str, key: str) -> str:
    try:
        with (Path(folder) / secret / key).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SourceError(f'Secret "{secret}" has no key {key}, or is not mounted') from error
    except OSError as error:
        raise SourceError(f'Secret "{secret}": {key} cannot be read: {error.strerror}') from error
    try:
        # Secrets made with echo end in a line feed that is nobody's password.
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise SourceError(f'Secret "{secret}": {key} is no UTF-8 text') from error
    if len(content) > MAX_BYTES or not text.isprintable():
        raise SourceError(f'Secret "{secret}": {key} is longer than {MAX_BYTES} bytes or holds control characters')
    return text
