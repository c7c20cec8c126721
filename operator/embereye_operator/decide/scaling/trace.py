"""A trace of the scaling law's inputs, one line of JSON per change, to replay and explain decisions.

`scale_fleet` passes each observation to `Trace.write`, which appends it to the fleet's file if it differs from the last
one. A line has everything that the law reads, so decisions can be replayed later, also by a later version. A full file
is rotated once, and beyond the folder's limit the oldest files go. A failed write is logged and left out; it never
fails a pass.
"""

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embereye.process.condition import Condition
from embereye.process.lifecycle import UserError, value_errors
from embereye.units import SECOND
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import from_manifest, openapi, to_manifest, with_defaults
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.scaling.law import Measured, Observed

logger = logging.getLogger(__name__)
LIMIT = 8_000_000  # bytes of a trace; then a new file starts, and one old file is retained
ROOM = 1024**3  # bytes; limit of the traces of all fleets together
BLOCK = 4096  # bytes; a file's size on disk is a multiple of it
SAME = 10_000_000_000  # nanoseconds; an unchanged observation is written again after this time
MAX_FLEETS = 10_000  # fleets whose latest observation is remembered; a forgotten one gets a surplus line


@dataclass(frozen=True)
class Entry:
    """One evaluation: the law's limits, the fleet's deadline, the observations."""

    limits: Autoscaling
    deadline: float  # seconds
    observed: Observed


def encode(entry: Entry) -> str:
    """Encode an entry as one line."""
    observed = entry.observed
    document: dict[str, Any] = {
        "time": observed.time,
        "shards": observed.shards,
        "missing": list(observed.missing),
        "lead": round(observed.lead, 1),
        "capacity": observed.capacity,
        "deadline": entry.deadline,
        "autoscaling": to_manifest(entry.limits),
    }
    if measured := observed.measured:
        document["measured"] = {
            "arrivalRate": round(measured.arrival_rate, 3),
            "cost": float(f"{measured.cost:.4g}"),
            "backlog": measured.backlog,
            "oldestAge": round(measured.oldest_age, 3),
            "utilization": round(measured.utilization, 4),
        }
    return json.dumps(document, separators=(",", ":"))


def decode(line: str | bytes) -> Entry:
    """Parse the result of `encode`; ValueError has the reason."""
    try:
        document = json.loads(line)
        raw = document.get("measured")
        measured = (
            Measured(raw["arrivalRate"], raw["cost"], raw["backlog"], raw["oldestAge"], raw["utilization"])
            if raw is not None
            else None
        )
        observed = Observed(
            time=int(document["time"]),
            shards=int(document["shards"]),
            measured=measured,
            missing=tuple(document.get("missing", ())),
            lead=float(document["lead"]),
            capacity=float(document["capacity"]),
        )
        limits = from_manifest(Autoscaling, with_defaults(openapi(Autoscaling), document.get("autoscaling") or {}))
        return Entry(limits, float(document["deadline"]), observed)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"missing or malformed: {error}") from error


def read(path: Path) -> Iterator[Entry]:
    """Yield the entries of a trace in order; UserError if it is no trace."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                with value_errors(f"{path}:{number}: not an entry of a scaling trace: "):
                    yield decode(line)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


@dataclass
class Trace:
    """Writes a file per fleet into a folder."""

    folder: Path
    room: int = ROOM  # bytes; limit of all files, of which the oldest are deleted
    _latest: dict[str, Observed] = field(default_factory=dict)
    _failing: Condition = field(default_factory=lambda: Condition(logger, end=logging.INFO, first_only=True))
    _grown: float = math.inf  # bytes written since the latest check of the limit

    def write(self, fleet: Fleet, observed: Observed) -> None:
        """Append a changed observation. On failure it is logged and left out, and the pass continues."""
        latest = self._latest.get(fleet.key)
        if latest and _same(latest, observed):
            return
        try:
            self._append(fleet, observed)
        except OSError as error:
            self._failing.fail(str(error), "%s: cannot record the scaling trace: %s", self.folder, error)
            return
        self._failing.clear("%s: recording the scaling trace again", self.folder)
        self._latest.pop(fleet.key, None)
        self._latest[fleet.key] = observed
        if len(self._latest) > MAX_FLEETS:
            del self._latest[next(iter(self._latest))]

    def _append(self, fleet: Fleet, observed: Observed) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._grown > self.room / 16:
            self._make_room()
        path = self.folder / f"{fleet.key.replace('/', '.')}.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size > LIMIT:
            path.replace(path.with_suffix(".jsonl.1"))
            size = 0
        line = encode(Entry(fleet.spec.autoscaling, fleet.spec.deadline / SECOND, observed)) + "\n"
        with path.open("a") as out:
            out.write(line)
        self._grown += _disk_bytes(size + len(line)) - _disk_bytes(size)

    def _make_room(self) -> None:
        """Delete the least recently written traces, until a quarter of the limit is free."""
        files = [(path.stat(), path) for path in self.folder.glob("*.jsonl*")]
        used = sum(_disk_bytes(stat.st_size) for stat, _ in files)
        for stat, file in sorted(files, key=lambda entry: entry[0].st_mtime_ns):
            if used <= 0.75 * self.room:
                break
            file.unlink()
            used -= _disk_bytes(stat.st_size)
        self._grown = 0.0


def _disk_bytes(size: int) -> int:
    """Return the bytes that a file of `size` occupies on its disk."""
    return -(-size // BLOCK) * BLOCK


def _same(a: Observed, b: Observed) -> bool:
    same = (a.shards, a.measured, a.missing, a.lead) == (b.shards, b.measured, b.missing, b.lead)
    return (same and 0 <= b.time - a.time < SAME) or 0 <= b.time - a.time < SECOND
