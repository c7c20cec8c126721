"""A login in a folder, as a Secret is mounted: username and password, and the pair that will replace them.

To change a password without a gap, add the new one as `password-next`, with `username-next` if the user changes, too.
While the device knows either of them, a client is refused at most once and then sends the other one.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

USER, PASSWORD, NEXT = "username", "password", "-next"
T = TypeVar("T")
Pair = tuple[str, str]  # user and password


def _read(file: Path) -> str:
    """Read a user or a password; OSError. Files made with echo end in a line feed that belongs to no password."""
    return file.read_text(encoding="utf-8").strip("\r\n")


def read_pairs(folder: Path, read: Callable[[Path], str] = _read) -> list[Pair]:
    """Read the login in `folder`, and the next one if there is one; raises what `read` raises, such as OSError."""
    user, password = read(folder / USER), read(folder / PASSWORD)
    pairs = [(user, password)]
    if (folder / f"{PASSWORD}{NEXT}").exists():
        named = folder / f"{USER}{NEXT}"
        pairs.append((read(named) if named.exists() else user, read(folder / f"{PASSWORD}{NEXT}")))
    return pairs


def choose(pairs: Sequence[T], refused: T | None) -> T:
    """The first of `pairs` that is not the one that was `refused` last; the first if there is no other."""
    return next((pair for pair in pairs if pair != refused), pairs[0])
