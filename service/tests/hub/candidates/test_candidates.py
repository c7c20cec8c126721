"""Differences from a shard through the hub to a person and to the operator."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.eventually import eventually
from prometheus_client import CollectorRegistry, generate_latest

from embereye.hub.candidates.keeper import Candidates
from embereye.hub.candidates.parts import candidate_parts
from embereye.hub.databases.store import StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role, Scope
from embereye.levels import Kind, Level
from embereye.process.candidates_call import CandidateReport
from embereye.process.grpc_server import GrpcServer
from embereye.process.http.server import bound_port, serve_http
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.shard.candidate.comparison import Difference, Side
from embereye.shard.candidate.counts import CandidateCounts
from embereye.shard.candidate.reports import CandidateReports
from embereye.shard.links import Links
from embereye.units import SECOND
from embereye.v1.roster_pb2 import CandidateResult, FleetRoster
from embereye.v1.shard_pb2 import Candidate
from embereye.v1.types_pb2 import Device

FLEET, TOKEN = "default/sensors/hall", "an-admins-token-of-forty-characters-or-so"


@dataclass
class Site:
    """A hub, and the reports of one shard's candidate."""

    base: str
    session: aiohttp.ClientSession
    reports: CandidateReports
    hub: Hub
    candidates: Candidates
    registry: CollectorRegistry

    async def listed(self, *names: str) -> dict[str, Any]:
        """The answer of the route once it lists the differences `names`, the newest first."""

        async def body() -> dict[str, Any] | None:
            answer = await self.read()
            return answer if [row["id"] for row in answer["differences"]] == list(names) else None

        answer: dict[str, Any] = await eventually(body)
        return answer

    async def read(self, token: str = TOKEN) -> dict[str, Any]:
        """The answer of the route."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.get(f"{self.base}/v1/detection/differences", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            body: dict[str, Any] = await answer.json()
            return body


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A hub with two zones, and a shard whose candidate begins."""
    threads = StoreThreads(tmp_path)
    hub = Hub(threads, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(TOKEN)
    candidates, registry = Candidates(hub), CollectorRegistry()
    parts = candidate_parts(hub, candidates, None)
    registry.register(*parts.collectors)
    control = GrpcServer(list(parts.services), control=True)
    links = Links(f"127.0.0.1:{control.listen('127.0.0.1:0')}")
    await control.start()
    reports = CandidateReports(lambda: (FLEET, "hall-0"))
    devices = [Device(id=name, zone=zone) for name, zone in (("s-1", "hall"), ("s-2", "yard"))]
    async with (
        aiohttp.ClientSession() as session,
        beside(hub.run(), name="hub"),
        beside(reports.run(links), name="reports"),
    ):
        await hub.coverage.set_roster(FleetRoster(fleet=FLEET, epoch=1, deadline_ns=5 * SECOND, devices=devices))
        runner = await serve_http(Api(hub, addons=[parts]).app(registry), "127.0.0.1", 0)
        reports.begin(Candidate(name="lower-gas", id="abc"), CandidateCounts(seen=7, cpu_seconds=0.5))
        yield Site(f"http://127.0.0.1:{bound_port(runner)}", session, reports, hub, candidates, registry)
        await runner.cleanup()
        await control.stop(0.2)
        await hub.committer.flush(10)
    await threads.close()


def difference(name: str, device: str, zone: str, level: Level = Level.ALARM, which: Side = "candidate") -> Difference:
    terms = [("gas", 4500.0, 4000.0, "ppm")]
    return Difference(name, device, zone, Kind.GAS, level, which, now_ns(), terms, f"episode-{name}")


async def test_a_difference_is_stored_listed_and_counted(site: Site) -> None:
    site.reports.add(difference("1", "s-1", "hall"))
    site.reports.add(difference("2", "s-2", "yard", Level.PRE_ALARM, "inForce"))
    body = await site.listed("2", "1")
    newest, oldest = body["differences"]
    assert (newest["which"], newest["level"], newest["zone"]) == ("inForce", "pre-alarm", "yard")
    assert oldest["terms"] == [{"name": "gas", "value": 4500.0, "threshold": 4000.0, "unit": "ppm"}]
    assert abs(int(oldest["atNs"]) - time.time_ns()) < 60 * SECOND
    (compared,) = body["candidates"]
    assert (compared["candidate"], compared["comparison"], compared["seen"]) == ("lower-gas", "abc", 7)
    await eventually(lambda: site.candidates.result(FLEET) == CandidateResult(id="abc", alarms=1, pre_alarms=1))
    assert b'embereye_hub_candidate_differences{fleet="default/sensors/hall",level="alarm"} 1.0' in generate_latest(
        site.registry
    )


async def test_a_repeated_report_is_counted_once(site: Site) -> None:
    again = difference("1", "s-1", "hall")
    site.reports.add(again)
    site.reports.add(again)
    site.reports.add(difference("2", "s-1", "hall"))
    await site.listed("2", "1")
    await eventually(lambda: (result := site.candidates.result(FLEET)) and result.alarms == 2)


async def test_a_caller_limited_to_zones_sees_only_their_differences(site: Site) -> None:
    by = Principal("admin", Role.ADMIN, "admin")
    token = await site.hub.access.create_token(by, "guard", Role.VIEWER, Scope(("default/hall",)))
    site.reports.add(difference("1", "s-1", "hall"))
    site.reports.add(difference("2", "s-2", "yard"))
    await site.listed("2", "1")
    body = await site.read(token)
    assert ([row["id"] for row in body["differences"]], body["candidates"]) == (["1"], [])


async def test_a_new_comparison_begins_with_nothing(site: Site) -> None:
    site.reports.add(difference("1", "s-1", "hall"))
    await site.listed("1")
    site.reports.begin(Candidate(name="lower-gas", id="def"), CandidateCounts())
    await eventually(lambda: (result := site.candidates.result(FLEET)) and (result.id, result.alarms) == ("def", 0))


async def test_people_and_the_operator_see_why_a_candidate_cannot_judge(site: Site) -> None:
    counts = CandidateCounts(problems={"s-2": "no model", "s-1": "no file"})
    site.reports.begin(Candidate(name="v2", id="def"), counts)
    await eventually(lambda: (result := site.candidates.result(FLEET)) and result.problem == "s-1 and 1 more: no file")
    (compared,) = (await site.read())["candidates"]
    assert compared["problem"] == "s-1 and 1 more: no file"


LATE = 2**62


def changed_report(**changes: Any) -> bytes:
    """A valid report, with `changes` of its difference, or of the report itself if it has such a field."""
    row: dict[str, Any] = {"id": "1", "device": "s-1", "zone": "hall", "kind": "gas", "level": "alarm", "atNs": 1,
                           "which": "candidate", "episode": "e", "terms": [["gas", 1.0, 2, "ppm"]]}  # fmt: skip
    report: dict[str, Any] = {"fleet": FLEET, "shard": "hall-0", "candidate": "c", "id": "a", "since_ns": 1,
                              "sent_ns": 1, "seen": 1, "unseen": 0, "cpu_seconds": 0.5}  # fmt: skip
    report |= {name: value for name, value in changes.items() if name in report or name == "differences"}
    row |= {name: value for name, value in changes.items() if name not in report}
    return json.dumps({"differences": [row], **report}).encode()


def test_a_report_is_read_as_it_was_written() -> None:
    report = CandidateReport.load(changed_report())
    assert CandidateReport.load(report.dump()) == report
    assert report.differences[0]["terms"] == [["gas", 1.0, 2, "ppm"]]


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"fleet":' * 100_000,
        b"[]",
        b"\xff",
        *(changed_report(**{name: LATE}) for name in ("atNs", "since_ns", "sent_ns", "seen", "unseen")),
        *(changed_report(**{name: -1}) for name in ("atNs", "since_ns", "seen", "cpu_seconds")),
        *(changed_report(**{name: True}) for name in ("atNs", "sent_ns", "cpu_seconds")),
        *(changed_report(cpu_seconds=value) for value in ("1", float("nan"), float("inf"), 10**400)),
        *(changed_report(terms=[term]) for term in (["gas", 1, 2], ["gas", "1", 2, "ppm"], ["gas", 10**400, 2, ""])),
        *(changed_report(terms=terms) for terms in ("gas", ["gas?"], [{}], [["gas", float("nan"), 2, "ppm"]])),
        changed_report(level="any text"),
        changed_report(which="neither"),
        changed_report(device=1),
        changed_report(differences={}),
    ],
)
def test_an_invalid_report_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"candidate|difference|codec"):
        CandidateReport.load(data)
