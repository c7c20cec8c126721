"""The drills: announces the one that runs, and signs its report.

`kubectl embereye drill` makes the faults, measures the recovery and reports both; the hub signs that this person
reported it. A drill survives a restart of the hub, which may be one of its faults. It ends by its reporter, or after
MAX_NS without a report. Changes are durable, with an audit entry, before a caller's call returns.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from embereye.addons.drills.tables import DRILLS, REPORTS, Report, find_report, list_reports
from embereye.hub.access.keeper import add_entry
from embereye.hub.actions import check_action
from embereye.hub.committer import Draft, StoreFailingError
from embereye.hub.hub import Hub
from embereye.hub.refusals import ConflictError, UnknownNameError
from embereye.hub.roles import HUB, Principal
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.hub.zones import VERSION
from embereye.process.signing import public_key, seal
from embereye.units import HOUR, utc

logger = logging.getLogger(__name__)
TICK_SECONDS = 30.0
MAX_NS = 2 * HOUR  # of a drill
RUNNING = ("running", "")  # the key of the drill that runs
FORGOTTEN = "ended by the hub after 2 h without a report"
Json = dict[str, Any]


@dataclass(frozen=True)
class Drill:
    """A drill that runs."""

    id: str
    who: str
    fleet: str
    started_ns: int  # by the wall clock
    faults: list[str] = field(default_factory=list)


class Drills:
    """All drills. Call `restore` once, then let `run` run."""

    def __init__(self, site: str, private: bytes, hub: Hub) -> None:
        self.running: Drill | None = None
        self._site = site
        self._private = private
        self._hub = hub

    # A part of the hub

    def restore(self, stored: StoredState) -> None:
        """Restore the drill that runs."""
        document = stored[DRILLS].get(RUNNING)
        self.running = Drill(**json.loads(document)) if document else None

    def add_state(self, state: Transaction) -> None:
        """Add all of it to `state`."""
        if self.running:
            state[DRILLS][RUNNING] = json.dumps(asdict(self.running))

    # People

    async def start(self, by: Principal, who: str, fleet: str, faults: Sequence[str]) -> Drill:
        """Announce a drill. Raises InvalidError, ConflictError if one runs, StoreFailingError."""
        check_action(who, fleet, "fleet")
        check_action("", " ".join(faults), "faults")
        name = by.acting_as(who)

        def step(draft: Draft) -> None:
            if self.running:
                raise ConflictError(f"a drill runs already, by {self.running.who}")
            self.running = Drill(secrets.token_hex(8), name, fleet, draft.now_ns + draft.stepped_ns, list(faults))
            draft.transaction[DRILLS][RUNNING] = json.dumps(asdict(self.running))
            add_entry(draft, by, "start drill", fleet, f"{name}: {', '.join(faults)}")

        await self._hub.committer.commit(step)
        assert self.running
        return self.running

    async def end(self, by: Principal, drill: str, who: str, results: Sequence[Mapping[str, Any]]) -> bytes:
        """End the drill `drill` with the results of its faults; returns its signed report.

        Raises InvalidError, ConflictError if it does not run, StoreFailingError.
        """
        check_action(who)
        return await self._end(by, drill, by.acting_as(who), results)

    async def _end(self, by: Principal, drill: str, ended_by: str, results: Sequence[Mapping[str, Any]]) -> bytes:
        running = self.running
        if running is None or running.id != drill:
            raise ConflictError(f"drill {drill[:50]} does not run")
        ended_ns = self._hub.timeline.wall_ns()
        done = [each["fault"] for each in results]
        not_run = [fault for fault in running.faults if fault not in done]
        made = {
            "format": 1, "drill": running.id, "site": self._site, "version": VERSION, "fleet": running.fleet,
            "started": utc(running.started_ns), "startedBy": running.who, "ended": utc(ended_ns), "endedBy": ended_by,
            "faults": [dict(each) for each in results], "notRun": not_run,
            "complete": not not_run and all(each["outcome"] == "passed" for each in results),
        }  # fmt: skip
        data = await asyncio.to_thread(seal, made, self._private)

        def step(draft: Draft) -> None:
            if self.running is not running:
                raise ConflictError(f"drill {drill[:50]} has ended meanwhile")
            self.running = None
            draft.transaction[DRILLS][RUNNING] = None
            draft.transaction[REPORTS][running.id] = Report(ended_ns, data)
            passed = sum(each["outcome"] == "passed" for each in results)
            add_entry(draft, by, "end drill", running.fleet, f"{ended_by}: {passed} of {len(running.faults)} passed")

        await self._hub.committer.commit(step)
        return data

    # Time

    async def run(self) -> None:
        """End a forgotten drill, until cancelled."""
        while True:
            try:
                await self.pass_time()
            except (StoreFailingError, ConflictError) as error:
                logger.warning("drills: %s", error)
            await asyncio.sleep(TICK_SECONDS)

    async def pass_time(self) -> None:
        """End the drill if its time is over."""
        if self.running and self._hub.timeline.wall_ns() - self.running.started_ns > MAX_NS:
            await self._end(HUB, self.running.id, FORGOTTEN, [])

    # Reading

    def key(self) -> str:
        """The public key of reports, in hexadecimal."""
        return public_key(self._private)

    async def find(self, name: str) -> bytes:
        """The signed report `name`. Raises UnknownNameError if there is none, and StoreError."""
        data = await self._hub.read(lambda store: find_report(store, name))
        if data is None:
            raise UnknownNameError(f"there is no report of a drill {name[:50]}")
        return data

    async def reports(self, limit: int) -> list[Json]:
        """The figures of up to `limit` reports, the newest first. Raises StoreError."""
        names = ("drill", "fleet", "started", "ended", "startedBy", "complete")
        files = await self._hub.read(lambda store: list_reports(store, limit))
        return [{name: json.loads(data)["statement"][name] for name in names} for data in files]
