"""Which devices this shard owns, as the operator says it: by call, and by file for when the operator is away."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from google.protobuf import json_format

from embereye.v1.shard_pb2 import Assignment

logger = logging.getLogger(__name__)


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
        if assignment.epoch == self.current.epoch:
            return f"epoch {assignment.epoch} is in force with other contents"
        self.current = Assignment()
        self.current.CopyFrom(assignment)
        logger.info("assignment %d: %d devices of %s", assignment.epoch, len(assignment.devices), assignment.fleet)
        for listener in list(self._listeners):
            listener(self.current)
        return ""


def load(path: Path) -> Assignment | None:
    """The assignment in `path` (protobuf JSON), or None where there is none yet; ValueError where it is not one."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return json_format.Parse(text, Assignment(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise ValueError(f"{path} is not an assignment: {error}") from error


async def follow_file(path: Path, assignments: Assignments, *, period: float = 0.5) -> None:
    """Offer what `path` holds, now and whenever it changes. A mounted ConfigMap changes by a symlink: hence polling."""
    seen: tuple[int, int, int] | None = None
    refused = ""
    while True:
        try:
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        except OSError:
            mark = None
        if mark is not None and mark != seen:
            try:
                assignment = load(path)
                reason = assignments.offer(assignment) if assignment else ""
            except ValueError as error:
                reason = str(error)
            if reason and reason != refused:
                logger.warning("assignment file not taken: %s", reason)
            refused = reason
            seen = mark
        await asyncio.sleep(period)
