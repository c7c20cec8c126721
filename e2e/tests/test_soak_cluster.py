"""The soak in a cluster: its schedule, its books over several pieces, its receivers, and its verdict."""

import asyncio
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
import aiomqtt
import pytest
from harness.cluster.audit import is_write, request_kind, with_audit
from harness.cluster.books import Books
from harness.cluster.cluster import ROOT
from harness.cluster.faults import FAULTS, other_pod
from harness.cluster.figures import ContainerUsage, Firing, Restarts, sum_requests, usages
from harness.cluster.soak import (
    JUDGED_SECONDS,
    SHORT_FAULTS,
    SHORT_LOAD,
    SHORT_SECONDS,
    SOAK_FAULTS,
    ClusterPlan,
    ClusterSoaked,
    new_run,
    read_plan,
    read_run,
    unfinished_run,
)
from harness.cluster.soak_site import TOTALS, surge_fleet
from harness.cluster.soak_text import EMPTY, soak_text, write_soak_text
from harness.cluster.writes import Changes, count_writes
from harness.devices import FloodingDevice
from harness.machine.soak import COLUMNS
from harness.matrix.edits import merge
from harness.matrix.matrix import Outcome
from harness.need import MOSQUITTO
from harness.records.diary import Diary
from harness.records.receivers import Arrivals, WebhookReceiver, follow_broker
from harness.records.witness import Lit
from harness.servers.mosquitto import Mosquitto

from embereye.process.tasks import beside
from embereye_operator.api.fleets import parse_fleet

PLAN = ClusterPlan(seconds=86_400, seed=7)
FINE = Outcome(
    faults=("hub killed",), gap=0.2, gap_limit=1.5, recovery=2.0, recovery_limit=30.0, evidence=40, evidence_lost=0,
    evidence_doubled=0, fires=3, alarms_lost=0, alarms_doubled=0, taken_back=0, slowest=0.3, delays=(0.1, 0.3),
)  # fmt: skip


def test_the_schedule_follows_from_the_seed_and_has_pairs_that_fit() -> None:
    schedule = PLAN.schedule()
    assert schedule == PLAN.schedule() != replace(PLAN, seed=8).schedule()
    assert [at for at, _ in schedule] == sorted(at for at, _ in schedule)
    assert schedule[-1][0] <= PLAN.seconds
    events = [event.split(" and ") for _, event in schedule if event not in {"fire", "burst"}]
    assert {name for names in events for name in names} == set(SOAK_FAULTS)
    pairs = [(FAULTS[first], FAULTS[second]) for first, second in (names for names in events if len(names) == 2)]
    assert pairs
    assert all(not first.takes or first.takes != second.takes for first, second in pairs)
    assert all(first.name != "API server down" for first, _ in pairs), "other faults need the API server"
    fires = sum(event == "fire" for _, event in schedule)
    assert fires == pytest.approx(PLAN.seconds / PLAN.fire_seconds, rel=0.2)


def test_the_fleet_of_the_bursts_is_valid() -> None:
    fleet = parse_fleet(surge_fleet(["surge-0", "surge-1"], {"type": "NodePort", "advertisedHost": "127.0.0.1"}))
    assert [device.id for device in fleet.devices] == ["surge-0", "surge-1"]


def test_the_roll_out_changes_fields_that_a_fleet_has() -> None:
    fleet = surge_fleet(["surge-0"], {"type": "NodePort", "advertisedHost": "127.0.0.1"})
    changed = parse_fleet({**fleet, "spec": merge(fleet["spec"], other_pod())})
    assert changed.spec.template != parse_fleet(fleet).spec.template


def test_a_short_run_has_three_fires_and_then_one_fault_of_its_seed() -> None:
    short = replace(PLAN, seconds=SHORT_SECONDS, short=True, faults=SHORT_FAULTS, **SHORT_LOAD)
    runs = [replace(short, seed=seed) for seed in range(30)]
    schedules = [run.schedule() for run in runs]
    assert schedules == [run.schedule() for run in runs]
    assert all([event for _, event in schedule[:-1]] == ["fire"] * 3 for schedule in schedules)
    assert {schedule[-1][1] for schedule in schedules} == set(SHORT_FAULTS)
    assert set(SHORT_FAULTS) <= set(SOAK_FAULTS)
    assert all(at < SHORT_SECONDS / 2 for schedule in schedules for at, _ in schedule), "time to recover is left"


def test_a_run_without_faults_has_fires_and_bursts_only() -> None:
    schedule = replace(PLAN, fault_seconds=0.0, seconds=3600).schedule()
    assert {event for _, event in schedule} == {"fire", "burst"}
    assert [at for at, event in schedule if event == "burst"] == [900, 1800, 2700, 3600]
    assert {event for _, event in replace(PLAN, fault_seconds=0.0, burst_seconds=0.0).schedule()} == {"fire"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new run."""
    folder = tmp_path / "soak-cluster-2026-01-01T00-00-00Z-7"
    new_run(folder, replace(PLAN, seconds=7200))
    return folder


def totals(**counts: int) -> dict[str, int]:
    return dict.fromkeys(TOTALS, 0) | counts


def burn(books: Books, at: float, number: int, **changed: Any) -> None:
    books.add(
        "fire", at, **{"number": number, "zone": f"z-{number}", "feed": 0.1, "webhook": 0.2, "mqtt": 0.3, **changed}
    )


def test_pieces_are_joined_and_the_next_one_continues_where_the_last_ended(folder: Path) -> None:
    first = Books(folder)
    first.add("piece", 0.0, piece=1)
    burn(first, 100.0, 0)
    first.add("totals", 110.0, piece=1, counts=totals(fires=1, evidence=5))
    first.add("fault", 400.0, number=1, seconds=20.0, outcome=asdict(FINE) | {"ok": True})
    first.add("totals", 420.0, piece=1, counts=totals(fires=4, evidence=9))
    with (folder / "books.jsonl").open("a") as file:
        file.write('{"kind": "fire", "at": 5')  # the piece was killed while it wrote
    second = Books(folder)
    assert (second.pieces, second.reached, second.next_event) == (1, 420.0, 2)
    second.add("piece", 420.0, piece=2)
    burn(second, 500.0, 2, feed=None)
    second.add("totals", 510.0, piece=2, counts=totals(fires=1, evidence=2))
    result = read_run(folder)
    assert result.pieces == 2
    assert (result.totals["fires"], result.totals["evidence"]) == (5, 11)
    assert result.fires == [(100.0, 0.1)]
    assert result.missed == ["z-2"]
    assert result.outcomes == [FINE]
    assert result.seconds == 510.0
    assert not result.ok
    assert "missed=1" in result.summary()


def test_the_newest_unfinished_run_is_continued_with_its_own_plan(folder: Path) -> None:
    results = folder.parent
    assert unfinished_run(results, None) == folder
    assert unfinished_run(results, 8) is None
    later = results / "soak-cluster-2026-01-02T00-00-00Z-8"
    new_run(later, replace(PLAN, seconds=60, seed=8))
    assert unfinished_run(results, None) == later
    assert unfinished_run(results, 7) == folder
    Books(later).add("totals", 60.0, piece=1, counts=totals())
    assert unfinished_run(results, None) == folder, "the other one has reached its end"
    assert read_plan(later) == replace(PLAN, seconds=60, seed=8)


@pytest.mark.parametrize("name", ["evidence_lost", "alarms_doubled", "webhooks_missing", "mqtt_missing", "taken_back"])
def test_a_single_loss_fails_the_run(name: str) -> None:
    fine = ClusterSoaked(PLAN, outcomes=[FINE], totals=totals())
    assert fine.ok
    assert not replace(fine, totals=totals(**{name: 1})).ok
    assert not replace(fine, problems=["12 s: Traceback"]).ok
    assert not replace(fine, outcomes=[replace(FINE, gap=9.0)]).ok


async def test_a_flooding_device_is_not_stuck() -> None:
    heard = asyncio.Queue[bytes]()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            heard.put_nowait(line)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    device = FloodingDevice("s-1", "hall", "127.0.0.1", server.sockets[0].getsockname()[1], rate=50.0)
    async with beside(device.run(), name="device"), asyncio.timeout(30):
        lines = [await heard.get() for _ in range(8)]
    server.close()
    assert len(set(lines[1:])) == 2


async def test_a_webhook_that_arrives_twice_is_one_alarm_and_a_repetition(tmp_path: Path) -> None:
    receiver = WebhookReceiver("127.0.0.1", Arrivals(tmp_path, "webhook"))
    await receiver.start()
    alarm = {"type": "TYPE_STATE", "state": "ZONE_STATE_ALARM", "zone": "hall", "alarm": "a1", "cursor": "4"}
    try:
        async with aiohttp.ClientSession() as session:
            for event in (alarm, alarm, {**alarm, "state": "ZONE_STATE_NORMAL"}):
                async with session.post(receiver.url, json={"webhook": "soak", "event": event}) as answer:
                    assert answer.status == 204
    finally:
        await receiver.stop()
    assert receiver.arrivals.missing([Lit("hall"), Lit("yard")]) == ["yard"]
    assert receiver.arrivals.repeated == 1
    lines = (tmp_path / "webhook.jsonl").read_text().splitlines()
    assert [json.loads(line)["alarm"] for line in lines] == ["a1", "a1"]


async def test_an_alarm_at_the_broker_is_noted_once_however_often_it_is_published(tmp_path: Path) -> None:
    MOSQUITTO.require()
    broker, arrivals, diary = Mosquitto(tmp_path / "broker"), Arrivals(tmp_path, "mqtt"), Diary(tmp_path, print)
    await asyncio.to_thread(broker.start)
    following = asyncio.ensure_future(follow_broker(broker.host, broker.port, arrivals, diary))
    try:
        async with aiomqtt.Client(broker.host, broker.port) as client:
            for fire, alarm in ((True, "a1"), (True, "a1"), (False, ""), (True, "a2")):
                state = json.dumps({"zone": "hall", "fire": fire, "alarm": alarm})
                await client.publish("embereye/zones/site/hall", state, qos=1, retain=True)
        assert await arrivals.arrived(Lit("hall"), 60) is not None
        async with asyncio.timeout(60):
            while '"a2"' not in (tmp_path / "mqtt.jsonl").read_text():
                await asyncio.sleep(0.05)
        assert arrivals.repeated == 0
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await asyncio.to_thread(broker.stop)
        diary.close()


def test_restarts_and_writes_are_excused_by_a_fault_only(folder: Path) -> None:
    books = Books(folder)
    books.add("piece", 0.0, piece=1)
    books.add("harm", 1000.0, event="shard killed")
    books.add("fault", 1000.0, number=0, seconds=30.0, outcome=asdict(FINE))
    books.add("restart", 1010.0, container="hall/shard", reason="Error", code=137)
    books.add("write", 1100.0, text="patch sensorfleets/status hall")
    assert read_run(folder).problems == []
    books.add("write", 5.0, text="patch sensorfleets/status hall")
    books.add("restart", 5.0, container="hall/shard", reason="Error", code=1)
    books.add("restart", 3000.0, container="embereye-hub/hub", reason="OOMKilled", code=137)
    books.add("write", 4000.0, text="patch sensorfleets/status hall")
    assert read_run(folder).problems == [
        "5 s: hall/shard restarted without a fault: Error 1",
        "3000 s: embereye-hub/hub restarted without a fault: OOMKilled 137",
        "4000 s: written at rest: patch sensorfleets/status hall",
    ]
    books.add("harm", 5000.0, event="node off")
    books.add("restart", 5100.0, container="hall/shard", reason="Error", code=137)
    books.add("piece", 5200.0, piece=2)
    assert len(read_run(folder).problems) == 3, "a fault that was cut with its piece is an excuse, too"
    books.add("restart", 5110.0, container="hall/shard", reason="Error", code=139)
    assert "5110 s: hall/shard crashed: Error 139" in read_run(folder).problems


def test_more_than_three_writes_for_a_fault_and_fleet_fail_the_run(folder: Path) -> None:
    books = Books(folder)
    books.add("piece", 0.0, piece=1)
    books.add("harm", 500.0, event="burst")
    for number in range(20):
        books.add("write", 500.0 + number, text="patch sensorfleets/status hall")
    books.add("burst", 500.0, number=0, seconds=30.0)
    for number, at in enumerate((1000.0, 2000.0, 3000.0)):
        books.add("harm", at, event="shard killed")
        for later in range(10):
            books.add("write", at + later, text="patch sensorfleets/status hall")
        books.add("fault", at, number=number, seconds=30.0, outcome=asdict(FINE))
    assert read_run(folder).problems == [], "a mean of three faults is not judged"
    books.add("harm", 4000.0, event="shard killed")
    for later in range(6):
        books.add("write", 4000.0 + later, text="patch sensorfleets/status hall")
    books.add("fault", 4000.0, number=3, seconds=30.0, outcome=asdict(FINE))
    assert read_run(folder).problems == []
    books.add("write", 4020.0, text="patch camerafleets/status yard")
    assert read_run(folder).problems == ["the operators wrote 3.1 times for a fault and fleet, more than 3"]


def test_a_write_belongs_to_the_last_fault_before_it_and_of_a_burst_to_that(folder: Path) -> None:
    books = Books(folder)
    books.add("piece", 0.0, piece=1)
    for at, event in ((1000.0, "shard killed"), (1100.0, "burst"), (1130.0, "node off")):
        books.add("harm", at, event=event)
        books.add("burst" if event == "burst" else "fault", at, number=0, seconds=20.0, outcome=asdict(FINE))
    for at, name in ((1010.0, "hall"), (1105.0, "surge"), (1110.0, "yard"), (1140.0, "hall"), (1150.0, "surge")):
        books.add("write", at, text=f"patch sensorfleets/status {name}", name=name)
    assert count_writes(books) == [("shard killed", 2), ("node off", 2)]


def status(minute: int, **changed: Any) -> dict[str, Any]:
    now = {"lastObserved": f"2026-01-01T00:{minute:02}:00Z", "readyShards": 2, "ledger": {"offered": minute}}
    return {**now, "conditions": [{"type": "Covered", "status": "True", "reason": "AllCovered"}], **changed}


def test_the_fields_that_a_write_changed_are_known_and_a_sign_of_life_is_no_change() -> None:
    target = {"resource": "sensorfleets", "subresource": "status", "name": "hall"}
    changes = Changes()
    changes.note("sensorfleets", "hall", status(0))

    def changed(**now: Any) -> tuple[str, bool]:
        return changes.describe({"verb": "patch", "objectRef": target, "requestObject": {"status": status(**now)}})

    assert changed(minute=15) == ("ledger", True)
    assert changed(minute=16) == ("ledger", False), "after a minute, numbers alone are no reason to write"
    dark = [{"type": "Covered", "status": "False", "reason": "DevicesDark"}]
    assert changed(minute=40, readyShards=1, conditions=dark) == (
        "Covered=False DevicesDark, ledger, readyShards",
        False,
    )
    assert changes.describe({"verb": "patch", "objectRef": {"resource": "configmaps", "name": "c"}}) == ("", False)
    scaled = {"resource": "sensorfleets", "subresource": "scale", "name": "surge"}
    patch = [{"op": "replace", "path": "/spec/replicas", "value": 2}]
    assert changes.describe({"verb": "patch", "objectRef": scaled, "requestObject": patch}) == ("", False)


def test_the_job_that_deletes_budgets_is_renewed_to_show_that_the_operator_lives() -> None:
    changes = Changes()

    def is_alive(time: str) -> bool:
        target = {"resource": "jobs", "name": "embereye-operator-embereye-budgets"}
        request = {"verb": "patch", "objectRef": target, "requestReceivedTimestamp": f"2026-01-01T{time}.250000Z"}
        return changes.describe(request)[1]

    assert is_alive("00:10:00")
    assert is_alive("00:20:00")
    assert not is_alive("00:21:00"), "sooner than every ten minutes"


def test_a_sign_of_life_is_no_write_at_rest(folder: Path) -> None:
    books = Books(folder)
    books.add("piece", 0.0, piece=1)
    books.add("write", 2000.0, text="patch sensorfleets/status hall: ledger", name="hall", is_alive=True)
    books.add("totals", 7200.0, piece=1, counts=totals())
    assert read_run(folder).problems == []


def test_an_alert_without_a_fault_is_a_problem_and_one_of_a_slow_machine_is_none(folder: Path) -> None:
    books = Books(folder)
    books.add("piece", 0.0, piece=1)
    books.add("harm", 1000.0, event="shard killed")
    books.add("fault", 1000.0, number=0, seconds=30.0, outcome=asdict(FINE))
    books.add("alert", 1010.0, name="ShardDown")
    books.add("alert", 3000.0, name="EventLoopSlow")
    assert read_run(folder).problems == []
    books.add("alert", 3000.0, name="HubDown")
    assert read_run(folder).problems == ["3000 s: HubDown fired without a fault"]


def test_an_alert_is_noted_each_time_that_it_begins_to_fire() -> None:
    firing = Firing()
    assert firing.began({"HubDown": "pending"}) == []
    assert firing.began({"HubDown": "firing"}) == ["HubDown"]
    assert firing.began({"HubDown": "firing", "ShardDown": "firing"}) == ["ShardDown"]
    assert firing.began({}) == []
    assert firing.began({"HubDown": "firing"}) == ["HubDown"]


def test_series_of_two_pieces_are_one_and_growth_beyond_the_mark_fails(folder: Path) -> None:
    for piece in range(2):
        books = Books(folder)
        books.add("piece", piece * 4000.0, piece=piece + 1)
        with (folder / "samples.csv").open("a") as file:
            file.write("" if piece else f"{COLUMNS},cpu_seconds\n")
            for at in range(0, 4000, 20):
                grown = 50 + 3 * at / 3600
                file.write(f"{piece * 4000 + at:.1f},hub,{piece},{grown:.2f},20,5,30.00,{at / 10:.1f}\n")
        books.add("totals", piece * 4000.0 + 4000, piece=piece + 1, counts=totals())
    result = read_run(folder)
    assert len(result.samples.rows) == 2
    assert result.samples.slopes()["memory_mb"]["hub"].value == pytest.approx(3, abs=0.2)
    assert result.growing == ["hub"]
    assert not result.ok


NAMES = 'container="hub",name="abcdef012345ff",namespace="embereye",pod="h-1"'
CADVISOR = f"""# HELP container_threads Number of threads running inside the container
container_file_descriptors{{{NAMES}}} 41 17
container_threads{{{NAMES}}} 9 17
container_memory_rss{{{NAMES}}} 5e+07 17
container_memory_working_set_bytes{{{NAMES}}} 8e+07
container_memory_rss{{container="",id="/kubepods",image="",name="",namespace="",pod=""}} 9e+09 17
"""


def test_the_usage_of_containers_is_read_from_a_kubelets_page() -> None:
    (usage,) = usages(CADVISOR)
    assert usage == ContainerUsage("embereye", "h-1", "abcdef012345ff", 50.0, 30.0, 41, 9, 0.0)


def test_requests_are_summed_by_verb_and_resource() -> None:
    page = (
        'apiserver_request_total{code="200",resource="pods",verb="LIST"} 3\n'
        'apiserver_request_total{code="404",resource="pods",verb="LIST"} 2\n'
        'apiserver_request_total{code="200",resource="",verb="GET"} 1\n'
    )
    assert sum_requests(page) == {"LIST pods": 5, "GET": 1}


def test_a_restart_is_reported_once_with_its_reason() -> None:
    restarts = Restarts()
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "1970-01-01T00:01:00Z"}

    def pod(count: int) -> dict[str, Any]:
        status = {"name": "hub", "restartCount": count, "lastState": {"terminated": ended} if count else {}}
        return {"metadata": {"uid": "u", "name": "h-1"}, "status": {"containerStatuses": [status]}}

    assert list(restarts.new([pod(0)])) == []
    assert list(restarts.new([pod(1)])) == [("h-1/hub", "OOMKilled", 137, 60.0)]
    assert list(restarts.new([pod(1)])) == []


def test_the_api_servers_manifest_gets_an_audit_log_once() -> None:
    container: dict[str, Any] = {"command": ["kube-apiserver"], "volumeMounts": []}
    manifest: dict[str, Any] = {"spec": {"containers": [container], "volumes": []}}
    assert with_audit(manifest)
    assert not with_audit(manifest)
    assert sum("audit-log-path" in word for word in container["command"]) == 1
    assert [mount["name"] for mount in container["volumeMounts"]] == ["audit"]


def test_leases_events_and_questions_are_no_writes() -> None:
    assert is_write({"verb": "patch", "objectRef": {"resource": "sensorfleets", "subresource": "status"}})
    assert not is_write({"verb": "update", "objectRef": {"resource": "leases"}})
    assert not is_write({"verb": "create", "objectRef": {"resource": "events"}})
    assert not is_write({"verb": "create", "objectRef": {"resource": "selfsubjectrulesreviews"}})
    refused = {"responseStatus": {"code": 409}}
    assert not is_write({"verb": "patch", "objectRef": {"resource": "configmaps"}, **refused})
    assert not is_write({"verb": "list", "objectRef": {"resource": "pods"}})
    tried = "/apis/autoscaling/v2/namespaces/site/horizontalpodautoscalers?dryRun=All"
    assert not is_write({"verb": "create", "objectRef": {"resource": "horizontalpodautoscalers"}, "requestURI": tried})


def test_a_request_is_named_by_verb_and_resource() -> None:
    target = {"resource": "sensorfleets", "subresource": "status", "name": "hall"}
    assert request_kind({"verb": "patch", "objectRef": target}) == "patch sensorfleets/status"
    assert request_kind({"verb": "get", "requestURI": "/version?timeout=5s"}) == "get /version"


def test_the_page_of_the_documentation_is_empty_or_of_a_run_of_two_hours() -> None:
    page = (ROOT / "docs/evidence/soak-cluster.md").read_text()
    hours = re.search(r"([\d.]+) hours in \d+ piece", page)
    assert float(hours[1]) * 3600 >= JUDGED_SECONDS if hours else page == EMPTY.read_text()


def test_pictures_stand_beside_the_page(folder: Path, tmp_path: Path) -> None:
    books = Books(folder)
    books.add("piece", 0.0, piece=1)
    burn(books, 100.0, 0)
    books.add("totals", 3600.0, piece=1, counts=totals(fires=1))
    (folder / "samples.csv").write_text(f"{COLUMNS},cpu_seconds\n20.0,hub,1,50.00,20,5,30.00,1.0\n")
    write_soak_text(tmp_path, read_run(folder), books)
    text = (tmp_path / "soak-cluster.md").read_text()
    for picture in re.findall(r"\]\((\S+\.svg)\)", text):
        assert (tmp_path / picture).read_text().startswith("<svg"), picture


def test_the_page_has_the_numbers_and_the_problems_of_all_pieces(folder: Path) -> None:
    books = Books(folder)
    books.add("piece", 0.0, piece=1)
    burn(books, 100.0, 0)
    books.add("harm", 400.0, event="hub killed")
    books.add("fault", 400.0, number=1, seconds=20.0, outcome=asdict(FINE))
    books.add("write", 410.0, text="patch sensorfleets/status hall")
    books.add("restart", 3000.0, container="embereye-hub/hub", reason="OOMKilled", code=137)
    books.add("alert", 405.0, name="HubDown")
    books.add("alert", 2000.0, name="HubDown")
    books.add("totals", 3600.0, piece=1, counts=totals(fires=4, evidence=9))
    books.add("figures", 3600.0, piece=1, lines={"hub": 120}, events={"Killing": 2}, requests={"WATCH pods": 60},
              asked={"list pods": 30}, writes={"patch sensorfleets/status": 1},
              sizes={"etcd_mb": 3.5, "postgres_mb": 8.1})  # fmt: skip
    text = soak_text(read_run(folder), Books(folder))
    for line in (
        "1.00 hours in 1 piece", "| acknowledged evidence lost, doubled | 0, 0 | 0, 0 of 9 |",
        "| restarts, of these without a fault | , 0 | 1, 1 |",
        "| writes of the operators for a fault: mean per fleet, most of all fleets | ≤ 3, | 0.3, 1 |",
        "- 3000 s: embereye-hub/hub restarted without a fault: OOMKilled 137", "| hub | 2 |", "| Killing | 2 |",
        "| hub killed | 1 | 0.2 s | 2 s | passed |", "etcd stored 3.5 MB, and PostgreSQL 8.1 MB",
        "| hub killed | 1 | 0.3 | 3 |",
        "| list pods | 0.5 |", "| HubDown | 2 | 1 |", "| alerts without a fault | 0 | 1 |", "HOURS=2 ARGS=\"--seed 7 ",
    ):  # fmt: skip
        assert line in text, text
