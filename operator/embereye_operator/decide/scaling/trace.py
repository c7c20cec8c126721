"""What scaling decided on, a line of JSON for every change of it, so that it can be decided again and explained."""

import json
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import from_manifest, openapi, to_manifest, with_defaults
from embereye_operator.api.shared import Autoscaling
from embereye_operator.decide.scaling.law import Measured, Observed

logger = logging.getLogger(__name__)
LIMIT = 8_000_000  # bytes of a trace; then it starts anew and the one before is kept
ROOM = 1024**3  # bytes that the traces of all fleets may take
BLOCK = 4096  # bytes that a file takes at least
SAME = 10_000_000_000  # nanoseconds for which an unchanged observation is not written again
MOST = 10_000  # fleets of which it is known; of one that was forgotten, as those that are gone are, one line more


@dataclass(frozen=True)
class Entry:
    """One evaluation: the law's limits, the fleet's deadline, what was observed."""

    limits: Autoscaling
    deadline: float  # seconds
    observed: Observed


def encode(entry: Entry) -> str:
    """One line."""
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
    """The inverse; ValueError says what is wrong."""
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
        raise ValueError(f"lacks {error}") from error


def read(path: Path) -> Iterator[Entry]:
    """The entries of a trace, in order; UserError where it is none."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield decode(line)
                except ValueError as error:
                    raise UserError(f"{path}, line {number} is no entry of a scaling trace: {error}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


@dataclass
class Trace:
    """Writes a file per fleet into a folder."""

    folder: Path
    room: int = ROOM  # bytes that all of them may take; the oldest go
    _latest: dict[str, Observed] = field(default_factory=dict)
    _failing: bool = False
    _grown: float = math.inf  # bytes since it was looked how much they take

    def write(self, fleet: Fleet, observed: Observed) -> None:
        """Append what is news; bounded in size. What cannot be written is left out and logged: a pass goes on."""
        latest = self._latest.get(fleet.key)
        if latest and _same(latest, observed):
            return
        try:
            self._append(fleet, observed)
        except OSError as error:
            if not self._failing:
                logger.warning("%s: what scaling decides on is not recorded: %s", self.folder, error)
            self._failing = True
            return
        if self._failing:
            logger.info("%s: what scaling decides on is recorded again", self.folder)
        self._failing = False
        self._latest.pop(fleet.key, None)
        self._latest[fleet.key] = observed
        if len(self._latest) > MOST:
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
        self._grown += _taken(size + len(line)) - _taken(size)

    def _make_room(self) -> None:
        """Remove the traces that were written to the longest time ago, until a quarter of the room is left."""
        files = [(found.stat(), found) for found in self.folder.glob("*.jsonl*")]
        used = sum(_taken(stat.st_size) for stat, _ in files)
        for stat, file in sorted(files, key=lambda one: one[0].st_mtime_ns):
            if used <= 0.75 * self.room:
                break
            file.unlink()
            used -= _taken(stat.st_size)
        self._grown = 0.0


def _taken(size: int) -> int:
    """Bytes that a file of `size` takes of its disk."""
    return -(-size // BLOCK) * BLOCK


def _same(a: Observed, b: Observed) -> bool:
    same = (a.shards, a.measured, a.missing, a.lead) == (b.shards, b.measured, b.missing, b.lead)
    return (same and 0 <= b.time - a.time < SAME) or 0 <= b.time - a.time < SECOND
