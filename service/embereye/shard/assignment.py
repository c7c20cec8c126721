"""The assignment of this shard: the devices that it owns. It comes from the operator by call, and from a file.

Both ways end in `Assignments.offer`, which puts an assignment in force as a whole if its epoch is newer, and calls all
listeners before it returns. An older epoch is refused, so that a delayed call or a stale file cannot take devices back.
The file, a mounted ConfigMap, lets a shard start while no operator runs.
"""

import gzip
import json
import logging
import zlib
from collections.abc import Callable
from pathlib import Path

from google.protobuf import json_format

from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.shard.settings import unset_field
from embereye.units import counted
from embereye.v1.shard_pb2 import Assignment

logger = logging.getLogger(__name__)
# Largest accepted step of an epoch. A mistaken epoch near the end of its range would leave no later one.
EPOCH_STEP = 2**32
PLACEMENT = "placement.json"  # the owner of each device, and the epoch


class Assignments:
    """The assignment in force. One with an older epoch is refused, wherever it comes from."""

    def __init__(self) -> None:
        self.current = Assignment()
        self._listeners: list[Callable[[Assignment], None]] = []

    def subscribe(self, listener: Callable[[Assignment], None]) -> Callable[[], None]:
        """Call `listener` with every new assignment; return a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def offer(self, assignment: Assignment) -> str:
        """Put `assignment` in force unless it is outdated; return why it was refused, or ''."""
        if assignment.epoch < self.current.epoch:
            return f"epoch {assignment.epoch} is older than epoch {self.current.epoch} in force"
        if assignment == self.current:
            return ""
        if assignment.epoch - self.current.epoch > EPOCH_STEP:
            return f"epoch {assignment.epoch} is too far from epoch {self.current.epoch} in force"
        if assignment.epoch == self.current.epoch:
            return f"epoch {assignment.epoch} is already in force with other contents"
        if field := unset_field(assignment):
            return f"{field} is not set: the operator is older than this shard. Upgrade the operator."
        self.current = Assignment()
        self.current.CopyFrom(assignment)
        logger.info(
            "assignment %d: %s of %s", assignment.epoch, counted(len(assignment.devices), "device"), assignment.fleet
        )
        for listener in list(self._listeners):
            listener(self.current)
        return ""


def load(path: Path) -> Assignment | None:
    """Read the assignment in `path` (protobuf JSON); None if there is none yet, ValueError if it is invalid.

    A large one is in `path`.gz. The file PLACEMENT next to it has the owners of all devices, for all shards; the result
    is also None while that file has another epoch.
    """
    if (current := path.with_name("..data")).is_symlink():
        # A mounted ConfigMap changes by this symlink. Resolve it once, so that both files are from one version.
        path = current.resolve() / path.name
    text = _read(path)
    if text is None:
        return None
    try:
        assignment = json_format.Parse(text, Assignment(), ignore_unknown_fields=True)
        placement = json.loads(_read(path.with_name(PLACEMENT)) or "{}")
        if placement.get("epoch", assignment.epoch) != assignment.epoch:
            return None
        for device, owner in placement.get("devices", {}).items():
            if owner != assignment.shard:
                assignment.elsewhere[device] = owner
    except (json_format.ParseError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is not an assignment: {error}") from error
    return assignment


def _packed(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


def _read(path: Path) -> str | None:
    file = path
    try:
        if _packed(path).exists():
            file = _packed(path)
            return gzip.decompress(file.read_bytes()).decode()
        return path.read_text()
    except FileNotFoundError:
        return None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is not gzip: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text: {error}") from error
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error


def _mark(path: Path) -> tuple[int, int, int] | None:
    for candidate in (_packed(path), path):
        try:
            stat = candidate.stat()
        except OSError:
            continue
        return stat.st_mtime_ns, stat.st_ino, stat.st_size
    return None


async def follow_file(path: Path, assignments: Assignments, *, period: float = 0.5) -> None:
    """Offer the assignment in `path`, now and when it changes. It is polled, as a mounted ConfigMap is a symlink."""
    offered: tuple[int, int, int] | None = None
    refused = ""
    while True:
        mark = _mark(path)
        if mark is not None and mark != offered:
            try:
                assignment = load(path)
                reason = assignments.offer(assignment) if assignment else ""
                if assignment is None:
                    mark = None  # PLACEMENT does not have its epoch yet
            except ValueError as error:
                reason, mark = str(error), None  # try again: the files may be readable in a moment
            if reason and reason != refused:
                logger.warning("assignment file refused: %s", reason)
            refused = reason
            offered = mark
        await aligned_sleep(period)
