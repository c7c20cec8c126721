"""The file with the admin's token: made where there is none, and read again whenever it changes."""

import asyncio
import logging
import os
import secrets
from pathlib import Path

from embereye.hub.access.keeper import PREFIX, SECRET_BYTES, Access
from embereye.process.lifecycle import UserError

logger = logging.getLogger(__name__)
LEAST = 32  # characters: a token is looked for by machines, at the speed of machines
LOOK_SECONDS = 2.0  # between two looks at the file: Kubernetes changes a mounted Secret without a word


def prepare(path: Path) -> str:
    """The token in the file at `path`, which is made where it does not exist; UserError where it cannot be used."""
    try:
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "w") as file:
                    file.write(PREFIX + secrets.token_urlsafe(SECRET_BYTES) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                path.unlink()  # a part of a token would be refused at each later start
                raise
        return read(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--admin-token-file {path}: {getattr(error, 'strerror', '') or error}") from error


def read(path: Path) -> str:
    """The token in the file. OSError where it cannot be read, ValueError where it is no secret."""
    text = path.read_text(encoding="utf-8").strip()
    if len(text) < LEAST or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"an admin's token has at least {LEAST} printable ASCII characters and no space")
    return text


async def follow(path: Path, access: Access) -> None:
    """Have `access` know the token in the file at `path` as it changes; what cannot be used changes nothing."""
    failing, known = "", ""
    while True:
        try:
            text = read(path)
        except (OSError, ValueError) as error:
            if failing != str(error):
                failing = str(error)
                logger.warning("the admin's token in %s cannot be used, the one before stays: %s", path, error)
        else:
            if known and text != known:
                logger.info("the admin's token was changed")
            failing, known = "", text
            access.set_admin_token(text)
        await asyncio.sleep(LOOK_SECONDS)
