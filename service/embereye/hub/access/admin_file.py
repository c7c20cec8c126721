"""The file with the admin's token: created if it is missing, and read again whenever it changes.

The server calls `prepare` before it serves, and then runs `follow`, which checks the file every two seconds. A new
token replaces the previous one at once and ends its sessions. If the file cannot be read, or its token is too weak, the
previous token stays valid.
"""

import asyncio
import logging
import secrets
from pathlib import Path

from embereye.hub.access.keeper import PREFIX, SECRET_BYTES, Access
from embereye.process.condition import Condition
from embereye.process.files import write_new
from embereye.process.lifecycle import UserError

logger = logging.getLogger(__name__)
MIN_LENGTH = 32  # characters: programs guess tokens, at the speed of programs
CHECK_SECONDS = 2.0  # between two checks of the file: Kubernetes changes a mounted Secret without notice


def prepare(path: Path) -> str:
    """Return the token in the file at `path`, which is created if missing; UserError if it cannot be used."""
    try:
        if not path.exists():
            write_new(path, f"{PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}\n".encode(), durable=True)
        return read(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--admin-token-file {path}: {getattr(error, 'strerror', '') or error}") from error


def read(path: Path) -> str:
    """Return the token in the file. OSError if it cannot be read, ValueError if it is too weak."""
    text = path.read_text(encoding="utf-8").strip()
    if len(text) < MIN_LENGTH or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"an admin's token needs at least {MIN_LENGTH} printable ASCII characters and no spaces")
    return text


async def follow(path: Path, access: Access) -> None:
    """Give `access` the token in the file at `path` whenever it changes; an unusable token changes nothing."""
    failing, known = Condition(logger), ""
    while True:
        try:
            text = read(path)
        except (OSError, ValueError) as error:
            sentence = "%s: the admin's token cannot be used, the previous one stays valid: %s"
            failing.fail(str(error), sentence, path, error)
        else:
            if known and text != known:
                logger.info("the admin's token was changed")
            failing.clear()
            known = text
            access.set_admin_token(text)
        await asyncio.sleep(CHECK_SECONDS)
