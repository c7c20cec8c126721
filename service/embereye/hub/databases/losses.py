"""The file in the hub's folder that lists losses of the database, for as long as no person has removed it.

The hub adds a line when it finds its database damaged or gone. Every start and every check reads the file, and the hub
reports the newest line until a person removes the file. It is outside the database, because the database is what was
lost.
"""

import logging
import os
import time
from pathlib import Path

from embereye.process.files import sync_folder
from embereye.units import utc

logger = logging.getLogger(__name__)
FILE = "database-losses.txt"
REMEDY = (
    "Restore a backup if the history matters (embereye hub restore), check zones, silences and tokens, and then remove "
    "the file {file}"
)
MAX_BYTES = 64 * 1024  # read of the file, which grows by a line for each loss


def note_loss(folder: Path, loss: str) -> None:
    """Add the sentence `loss` to the list and log it. OSError if the file cannot be written."""
    logger.critical("the hub's database was damaged or lost: %s", loss)
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(f"{utc(time.time_ns())} {loss}\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def read_losses(folder: Path) -> list[str]:
    """The listed losses, oldest first, each on one line with its time."""
    try:
        with (folder / FILE).open("rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def describe_losses(folder: Path, losses: list[str]) -> str:
    """The newest of `losses` with its remedy, for people; '' if there are none."""
    return f"the hub's database was damaged or lost: {losses[-1]} {REMEDY.format(file=folder / FILE)}" if losses else ""
