"""The entry of every device: its declaration, its coverage, its latest measurements and its ledger.

For each device there is first a source: a few facts to search and sort by, and a function that makes the entry. All
sources are of one moment; the list makes entries from them in slices. Dark devices are the most urgent. A report that
cannot be understood costs only its own device the details.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial

from embereye.hub.coverage.book import Fleet, Watched
from embereye.hub.coverage.ledgers import add_up
from embereye.hub.http.fleets.lists import Facts, Source
from embereye.hub.http.openapi.parts import Json
from embereye.hub.hub import Hub
from embereye.hub.tables.ledgers import OwnerLedger
from embereye.levels import ZoneState
from embereye.v1.evidence_pb2 import Ledger
from embereye.v1.types_pb2 import Term

logger = logging.getLogger(__name__)
COUNTS = ("offered", "analysed", "duplicate", "waiting", "shared", "takeovers")  # of a ledger


class DeviceEntries:
    """The entries of /v1/devices."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def entries(self) -> Iterator[Source]:
        """Yield the source of each device's entry, declared ones first."""
        book = self._hub.coverage.book
        states = self._hub.zones.states()
        for fleet, watched in book.devices():
            yield self._source(fleet, watched, states, declared=True)
        for fleet, watched in book.undeclared_devices():
            yield self._source(fleet, watched, states, declared=False)

    def _source(
        self, fleet: Fleet, watched: Watched, states: Mapping[tuple[str, str], ZoneState], *, declared: bool
    ) -> Source:
        """Make a source. Dark devices are the most urgent, then those in zones in alarm; undeclared ones come last."""
        device = watched.device
        reason = self._hub.coverage.darkness(fleet, watched) if declared else "not declared"
        state = states.get((fleet.namespace, device.zone), ZoneState.NORMAL)
        urgency = 100 * bool(declared and reason) + 10 * declared + state.severity
        words = (device.id, device.zone, device.location, fleet.name, reason or "watched", "dark" * bool(reason))
        picture = bool(watched.picture_ns or watched.thermal) or "/cameras/" in fleet.name
        zone = f"{fleet.namespace}/{device.zone}"
        facts = Facts(urgency, " ".join(words).lower(), picture, declared * state.severity, zone, fleet.name)
        make = partial(self.entry, fleet, watched, declared=declared)
        return Source(f"{fleet.name}/{device.id}", make, facts)

    def entry(self, fleet: Fleet, watched: Watched, *, declared: bool) -> Json:
        """Make the entry of one device."""
        try:
            return self._entry(fleet, watched, declared=declared)
        except Exception:  # an odd report about one device must not hide the others
            logger.exception("device %s of %s: its entry cannot be made", watched.device.id, fleet.name)
            reason = "its shard's report cannot be understood"
            return {"declared": declared, "fleet": fleet.name, "id": watched.device.id, "zone": watched.device.zone,
                    "namespace": fleet.namespace, "location": "", "source": "", "covered": False, "reason": reason,
                    "shards": [], "pictureNs": "0", "thermalNs": "0", "heardNs": "0", "analysedNs": "0"}  # fmt: skip

    @staticmethod
    def fields() -> Json:
        """The fields in addition to the list."""
        return {"timeNs": str(time.time_ns())}

    def label(self, time_ns: int) -> str:
        """Convert a time on the hub's timeline to the wall clock; 0: never."""
        return str(time_ns + self._hub.timeline.stepped_ns() if time_ns else 0)

    def _entry(self, fleet: Fleet, watched: Watched, *, declared: bool) -> Json:
        latest = max(watched.sightings.items(), key=lambda entry: entry[1].heard, default=None)
        reason = self._hub.coverage.darkness(fleet, watched) if declared else f"not declared in {fleet.name}"
        entry: Json = {
            "declared": declared,
            "fleet": fleet.name,
            "id": watched.device.id,
            "zone": watched.device.zone,
            "namespace": fleet.namespace,
            "location": watched.device.location,
            "source": watched.device.source,
            "covered": not reason,
            "reason": reason,
            "shards": sorted(watched.sightings),
            "pictureNs": self.label(watched.picture_ns),
            "thermalNs": self.label(watched.thermal_ns),
            "heardNs": self.label(watched.heard_ns),
            "analysedNs": self.label(watched.analysed_ns),
        }
        if latest is not None:
            status = latest[1].status
            entry |= {
                "state": status.state,
                "degraded": status.degraded,
                "latest": [_term(term) for term in status.latest],
            }
        if parts := self._hub.coverage.ledgers.owner_ledgers(fleet.name, watched.device.id):
            entry["ledger"] = _ledger(add_up(part.ledger for part in parts))
            entry["owners"] = [self._owner(part, watched) for part in parts]
        elif latest is not None:
            entry["ledger"] = _ledger(latest[1].status.ledger)
        if watched.thermal:
            celsius = [value for value in watched.thermal.celsius if math.isfinite(value)]
            hottest = round(max(celsius), 1) if celsius else None
            entry["thermal"] = {"hottest": hottest, "relative": watched.thermal.relative}
        return entry

    def _owner(self, part: OwnerLedger, watched: Watched) -> Json:
        sighting = watched.sightings.get(part.key.shard)
        present = sighting is not None and sighting.status.ledger.since_ns == part.key.since_ns
        return {
            "shard": part.key.shard,
            "sinceNs": str(part.key.since_ns),
            "untilNs": self.label(part.until_ns),
            "state": "closed" if part.final else "open" if present else "lost",
            "ledger": _ledger(part.ledger),
        }


# These functions write the same as `json_format.MessageToDict`, which takes ten times as long.


def _term(term: Term) -> Json:
    entry: Json = {"name": term.name, "value": term.value, "threshold": term.threshold, "unit": term.unit}
    return {name: _number(value) if isinstance(value, float) else value for name, value in entry.items() if value}


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _ledger(ledger: Ledger) -> Json:
    entry: Json = {name: str(count) for name in COUNTS if (count := getattr(ledger, name))}
    if ledger.since_ns:
        entry["sinceNs"] = str(ledger.since_ns)
    for name in ("shed", "rejected"):
        if reasons := getattr(ledger, name):
            entry[name] = {reason: str(count) for reason, count in reasons.items()}
    return entry
