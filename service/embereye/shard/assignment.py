"""Which devices this shard owns, as the operator says it: by call, and by file for when the operator is away."""

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
# More changes at once than ever happen. An epoch near the end of its range would leave none for whoever comes next.
EPOCH_STEP = 2**32
PLACEMENT = "placement.json"  # which shard owns each device, and under which epoch


class Assignments:
    """Holds the assignment in force. Epochs fence: an older one is refused, whoever brings it."""

    def __init__(self) -> None:
        self.current = Assignment()
        self._listeners: list[Callable[[Assignment], None]] = []

    def subscribe(self, listener: Callable[[Assignment], None]) -> Callable[[], None]:
        """Call `listener` with every assignment that takes force; returns what unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def offer(self, assignment: Assignment) -> str:
        """Take `assignment` unless it is outdated; returns why it was refused, or ''."""
        if assignment.epoch < self.current.epoch:
            return f"epoch {assignment.epoch} is older than {self.current.epoch}, which is in force"
        if assignment == self.current:
            return ""
        if assignment.epoch - self.current.epoch > EPOCH_STEP:
            return (
                f"epoch {assignment.epoch} is further from {self.current.epoch}, which is in force, than anybody counts"
            )
        if assignment.epoch == self.current.epoch:
            return f"epoch {assignment.epoch} is in force with other contents"
        if field := unset_field(assignment):
            return f"{field} is not set: the operator that wrote the assignment is older than this shard, upgrade it"
        self.current = Assignment()
        self.current.CopyFrom(assignment)
        logger.info(
            "assignment %d: %s of %s", assignment.epoch, counted(len(assignment.devices), "device"), assignment.fleet
        )
        for listener in list(self._listeners):
            listener(self.current)
        return ""


def load(path: Path) -> Assignment | None:
    """The assignment in `path` (protobuf JSON), or None where there is none yet; ValueError where it is not one.

    Large ones stand in `path`.gz. Where the devices of others are stands once for all shards in PLACEMENT beside it:
    None, too, while that is of another epoch.
    """
    if (current := path.with_name("..data")).is_symlink():
        # A mounted ConfigMap changes by this symlink: both files are to be of one version.
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
    """Offer what `path` holds, now and whenever it changes. A mounted ConfigMap changes by a symlink: hence polling."""
    seen: tuple[int, int, int] | None = None
    refused = ""
    while True:
        mark = _mark(path)
        if mark is not None and mark != seen:
            try:
                assignment = load(path)
                reason = assignments.offer(assignment) if assignment else ""
                if assignment is None:
                    mark = None  # its other half is not there yet
            except ValueError as error:
                reason, mark = str(error), None  # it may be readable in a moment, and its other half be mended
            if reason and reason != refused:
                logger.warning("assignment file not taken: %s", reason)
            refused = reason
            seen = mark
        await aligned_sleep(period)
