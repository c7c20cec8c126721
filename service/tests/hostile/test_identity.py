"""Access needs proof of identity: strangers, and our own processes beyond their role, are refused over the wire."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from harness.calls import await_refusal
from harness.servers.identity import HUB, OPERATOR, Issuer, shard
from harness.settings import sensor_settings

from embereye.levels import Kind, Level
from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel, control_channel
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, shard_server_name
from embereye.v1.alarms_pb2 import ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.clips_pb2 import Clip
from embereye.v1.clips_pb2_grpc import ClipsStub
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, EvidenceItem, Ledger, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.ingest_pb2 import RelayedConnection, RelayRequest, TakeOverRequest, Watermark
from embereye.v1.ingest_pb2_grpc import IngestStub, RelaysStub
from embereye.v1.roster_pb2 import FleetRoster, HeardRequest, RetainRequest
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.shard_pb2 import Assignment, InheritRequest, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardStub
from embereye.v1.types_pb2 import Device

FLEET = "default/sensors/hall"
SHARD = shard(FLEET, "hall-sensors-0")
LAST = 2**64 - 1
HOST = "127.0.0.1"
TOKEN = "a-token-of-the-admin-in-tests-of-identity"
ROSTER = FleetRoster(fleet=FLEET, epoch=3, deadline_ns=5_000_000_000, devices=[Device(id="a", zone="hall")])
ASSIGNMENT = Assignment(
    fleet=FLEET, shard=SHARD.name, epoch=3, devices=[Device(id="a", zone="hall")], sensor=sensor_settings()
)


@dataclass
class Site:
    """A hub and a sensor shard as processes, with certificates of a test authority."""

    folder: Path
    issuer: Issuer
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, list[int]] = field(default_factory=dict)

    def start(self, name: str, *more: str, identity: bool = True, host: str = HOST) -> None:
        ports = self.ports.setdefault(name, free_ports(4))
        open_port, control, other, metrics = map(str, ports)
        arguments = ["--host", host, "--grpc-port", open_port, "--control-port", control]
        arguments += ["--data", str(self.folder / name)]
        if name == "hub":
            (self.folder / "admin-token").write_text(TOKEN)
            role, arguments = HUB, ["hub", *arguments, "--http-port", other]
            arguments += ["--admin-token-file", str(self.folder / "admin-token")]
        else:
            role, hub = SHARD, f"{HOST}:{self.ports['hub'][1]}" if "hub" in self.ports else f"{HOST}:1"
            arguments = ["shard", "sensor", *arguments, "--tcp-port", other, "--metrics-port", metrics, "--hub", hub]
            arguments += ["--shard", SHARD.name, "--assignment", str(self.folder / "assignment.json")]
        if identity:
            arguments += ["--identity", str(self.issuer.folder(role))]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "embereye_cli", *arguments, *more], stderr=log
            )

    def end(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(60)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def open(self, name: str) -> grpc.aio.Channel:
        """Dial the port for devices and people, with the token of the hub's admin."""
        return channel(f"{HOST}:{self.ports[name][0]}", QUICK, token=TOKEN)

    def control(self, name: str, caller: Identity | None, issuer: Issuer | None = None) -> grpc.aio.Channel:
        """Dial the control port as `caller`; None: without a certificate, but trusting our authority."""
        server = HUB.server_name if name == "hub" else SHARD.server_name
        address = f"{HOST}:{self.ports[name][1]}"
        if caller is None:
            trusting = grpc.ssl_channel_credentials(self.issuer.authority.trusted)
            return grpc.aio.secure_channel(address, trusting, [("grpc.ssl_target_name_override", server), *QUICK])
        folder = (issuer or self.issuer).folder(caller)
        (folder / "ca.crt").write_bytes(self.issuer.authority.trusted + (issuer or self.issuer).authority.trusted)
        return control_channel(address, server, Credentials(folder), QUICK)

    def get(self, path: str) -> Any:
        address = f"http://{HOST}:{self.ports['hub'][2]}{path}"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)


QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, Issuer(tmp_path / "identities"))
    yield site
    for name in list(site.processes):
        site.end(name)


@pytest.fixture
async def hub(site: Site) -> AsyncIterator[Site]:
    site.start("hub")
    async with site.open("hub") as link:
        await AlarmsStub(link).Zones(ZonesRequest(), wait_for_ready=True, timeout=30)
    yield site
    assert site.processes["hub"].poll() is None, site.log("hub")


@pytest.fixture
async def watching(site: Site) -> AsyncIterator[Site]:
    """A shard with an assignment of epoch 3; its hub is not running."""
    (site.folder / "assignment.json").write_text(json_format.MessageToJson(ASSIGNMENT))
    site.start("shard")
    async with site.control("shard", OPERATOR) as link:
        stub = ShardStub(link)
        async with asyncio.timeout(30):
            while (await stub.Status(StatusRequest(), wait_for_ready=True)).epoch != 3:
                await asyncio.sleep(0.05)
    yield site
    assert site.processes["shard"].poll() is None
    assert "Traceback" not in site.log("shard")


def smoke(name: str, fleet: str = FLEET) -> EvidenceItem:
    now = time.time_ns()
    return EvidenceItem(
        id=name, episode=name, fleet=fleet, device="a", zone="hall", kind=Kind.SMOKE.wire, level=Level.ALARM.wire,
        since_ns=now, until_ns=now,
    )  # fmt: skip


def coverage(ledger: Ledger | None = None, *, name: str = SHARD.name, fleet: str = FLEET, at: int = 0) -> Coverage:
    device = DeviceStatus(id="a", zone="hall", covered=True, ledger=ledger or Ledger(offered=1, analysed=1))
    return Coverage(fleet=fleet, shard=name, epoch=3, time_ns=at or time.time_ns(), devices=[device])


HELLO = ShardHello(fleet=FLEET, shard=SHARD.name, epoch=3)


async def report(link: grpc.aio.Channel, *bodies: ShardHello | Coverage | EvidenceItem, until: str = "") -> None:
    """Report all `bodies`, and wait until the hub has acknowledged `until`, or ended the stream."""
    await await_refusal(lambda pause: _report(link, pause, *bodies, until=until))


async def _report(
    link: grpc.aio.Channel, pause: float, *bodies: ShardHello | Coverage | EvidenceItem, until: str
) -> None:
    call = EvidenceStub(link).Report(timeout=10)
    try:
        # A refused call cannot be written to; reading it raises the reason.
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            for body in bodies:
                request = ReportRequest()
                kind = {ShardHello: request.hello, Coverage: request.coverage, EvidenceItem: request.evidence}
                kind[type(body)].MergeFrom(body)
                await asyncio.sleep(pause)
                await call.write(request)
            if not until:
                await call.done_writing()
        async for response in call:
            if until and until in response.acknowledged:
                return
    finally:
        call.cancel()
    assert not until, f"{until} was not acknowledged"


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


HUB_CALLS: dict[str, Callable[[grpc.aio.Channel], Any]] = {
    "Report": lambda link: report(link, HELLO, coverage(at=2**62), smoke("forged"), until="forged"),
    "Set": lambda link: RosterStub(link).Set(FleetRoster(fleet=FLEET, epoch=LAST, deadline_ns=1), timeout=10),
    "Retain": lambda link: RosterStub(link).Retain(RetainRequest(), timeout=10),
    "Heard": lambda link: RosterStub(link).Heard(HeardRequest(), timeout=10),
    "Held": lambda link: ClipsStub(link).Held(Clip(fleet=FLEET, sha256="0" * 64), timeout=10),
}


async def pass_on(link: grpc.aio.Channel) -> None:
    await await_refusal(lambda pause: _pass_on(link, pause))


async def _pass_on(link: grpc.aio.Channel, pause: float) -> None:
    call = RelaysStub(link).Pass(timeout=10)
    forged = RelayedConnection(since_ns=LAST // 2, address="10.0.0.1", device="a", lines=b"#Sensora:ADC1=3900!\r\n")
    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # reading raises the reason
        await asyncio.sleep(pause)
        await call.write(RelayRequest(connections=[forged]))
        await call.done_writing()
    async for _ in call:
        pass


SHARD_CALLS: dict[str, Callable[[grpc.aio.Channel], Any]] = {
    "Assign": lambda link: ShardStub(link).Assign(Assignment(fleet=FLEET, shard=SHARD.name, epoch=LAST), timeout=10),
    "Status": lambda link: ShardStub(link).Status(StatusRequest(), timeout=10),
    "Pass": pass_on,
    "Inherit": lambda link: ShardStub(link).Inherit(InheritRequest(reports=[EvidenceItem(id="forged")]), timeout=10),
    "TakeOver": lambda link: IngestStub(link).TakeOver(
        TakeOverRequest(fleet=FLEET, epoch=LAST, watermarks=[Watermark(device="a", epoch=LAST, sequence=LAST)]),
        timeout=10,
    ),
}


async def test_a_stranger_at_the_hubs_open_port_can_forge_nothing(hub: Site) -> None:
    async with hub.open("hub") as link:
        for name, call in HUB_CALLS.items():
            assert (await refused(call(link)))[0] == grpc.StatusCode.UNIMPLEMENTED, name
    async with hub.control("hub", SHARD) as link:
        await report(link, HELLO, coverage(), smoke("real"), until="real")
    async with hub.open("hub") as link:
        (zone,) = (await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)).zones
    assert [item.device for item in zone.contributions] == ["a"]


async def test_a_stranger_at_the_shards_open_port_can_control_nothing(watching: Site) -> None:
    async with watching.open("shard") as link:
        for name, call in SHARD_CALLS.items():
            assert (await refused(call(link)))[0] == grpc.StatusCode.UNIMPLEMENTED, name
    async with watching.control("shard", OPERATOR) as link:
        status = await ShardStub(link).Status(StatusRequest(), timeout=10)
    assert (status.epoch, status.draining) == (3, False)


async def test_control_needs_a_certificate_of_our_authority(hub: Site, tmp_path: Path) -> None:
    stranger = Issuer(tmp_path / "stranger")
    for caller, issuer in ((None, None), (SHARD, stranger), (OPERATOR, stranger)):
        async with hub.control("hub", caller, issuer) as link:
            for name, call in HUB_CALLS.items():
                assert (await refused(call(link)))[0] == grpc.StatusCode.UNAVAILABLE, name
    async with channel(f"{HOST}:{hub.ports['hub'][1]}") as link:  # and without TLS
        assert (await refused(HUB_CALLS["Set"](link)))[0] == grpc.StatusCode.UNAVAILABLE


async def test_scanning_the_control_port_writes_nothing_into_the_log(hub: Site) -> None:
    address = HOST, hub.ports["hub"][1]
    for greeting in (b"", b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(600)):
        with socket.create_connection(address, 5) as scanner:
            scanner.sendall(greeting)
            scanner.shutdown(socket.SHUT_WR)
            scanner.settimeout(5)
            with contextlib.suppress(ConnectionError):
                while scanner.recv(4096):
                    pass
    foreign = [line for line in hub.log("hub").splitlines() if not re.match(r"\d{4}-\d\d-\d\dT", line)]
    assert not foreign


async def test_a_shard_refuses_a_hub_without_a_hubs_certificate(hub: Site) -> None:
    address = f"{HOST}:{hub.ports['hub'][1]}"
    other = control_channel(address, shard_server_name("default", "x"), Credentials(hub.issuer.folder(SHARD)), QUICK)
    async with other as link:
        assert (await refused(HUB_CALLS["Held"](link)))[0] == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("caller", "allowed"),
    [(SHARD, {"Report", "Held"}), (OPERATOR, {"Set", "Retain", "Heard"}), (HUB, set())],
    ids=["shard", "operator", "hub"],
)
async def test_our_own_processes_may_call_the_hub_only_within_their_role(
    hub: Site, caller: Identity, allowed: set[str]
) -> None:
    async with hub.control("hub", caller) as link:
        for name in HUB_CALLS.keys() - allowed:
            code, sentence = await refused(HUB_CALLS[name](link))
            assert code == grpc.StatusCode.PERMISSION_DENIED, name
            assert str(caller) in sentence


async def test_our_own_processes_may_call_a_shard_only_within_their_role(watching: Site) -> None:
    stranger = shard("default/sensors/yard", "yard-sensors-0")
    peer = shard(FLEET, "hall-sensors-1")
    for caller, allowed in (
        (HUB, set()),
        (stranger, set()),
        (peer, {"TakeOver", "Pass", "Inherit"}),
        (OPERATOR, {"Status", "Assign"}),
    ):
        async with watching.control("shard", caller) as link:
            for name in SHARD_CALLS.keys() - allowed:
                code, sentence = await refused(SHARD_CALLS[name](link))
                assert code == grpc.StatusCode.PERMISSION_DENIED, name
                assert str(caller) in sentence


async def test_a_shard_inherits_only_a_limited_number_of_its_own_fleets_reports(watching: Site) -> None:
    async with watching.control("shard", shard(FLEET, "hall-sensors-1")) as link:
        for reports, sentence in (
            ([EvidenceItem(id="x", fleet="default/sensors/yard")], "this is a shard of default/sensors/hall"),
            ([EvidenceItem(fleet=FLEET)], "with id"),
            ([EvidenceItem(id=f"x{number}", fleet=FLEET) for number in range(101)], "at most 100"),
        ):
            code, details = await refused(ShardStub(link).Inherit(InheritRequest(reports=reports), timeout=10))
            assert (code, sentence in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    async with watching.control("shard", OPERATOR) as link:
        assert (await ShardStub(link).Status(StatusRequest(), timeout=10)).evidence_spooled == 0


async def test_a_hub_of_some_namespaces_refuses_shards_of_others(site: Site) -> None:
    site.start("hub", "--namespace", "default,annex")
    async with site.open("hub") as link:
        await AlarmsStub(link).Zones(ZonesRequest(), wait_for_ready=True, timeout=30)
    elsewhere = "elsewhere/sensors/hall"
    async with site.control("hub", shard(elsewhere, SHARD.name)) as link:
        hello = ShardHello(fleet=elsewhere, shard=SHARD.name, epoch=3)
        code, sentence = await refused(report(link, hello, smoke("foreign", fleet=elsewhere), until="foreign"))
        assert code == grpc.StatusCode.PERMISSION_DENIED
        assert "serves shards of namespace annex, default" in sentence
        assert (await refused(HUB_CALLS["Held"](link)))[0] == grpc.StatusCode.PERMISSION_DENIED
    async with site.control("hub", SHARD) as link:
        await report(link, HELLO, coverage(), smoke("real"), until="real")
    async with site.control("hub", OPERATOR) as link:  # whose identity is in the release's namespace
        await RosterStub(link).Set(ROSTER, timeout=10)
    async with site.open("hub") as link:
        zones = (await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)).zones
    assert {zone.namespace for zone in zones} == {"default"}


def test_a_hub_without_identities_refuses_to_separate_namespaces(site: Site) -> None:
    site.start("hub", "--namespace", "default", identity=False)
    assert site.processes["hub"].wait(30) != 0
    assert "--namespace needs --identity" in site.log("hub")
    del site.processes["hub"]


async def test_a_shard_reports_only_for_itself(hub: Site) -> None:
    forgeries: list[tuple[ShardHello | Coverage | EvidenceItem, ...]] = [
        (ShardHello(fleet=FLEET, shard="hall-sensors-1"),),
        (ShardHello(fleet="default/sensors/yard", shard=SHARD.name),),
        (HELLO, coverage(name="hall-sensors-1")),
        (HELLO, coverage(fleet="default/sensors/yard")),
        (HELLO, smoke("forged", fleet="default/sensors/yard")),
        (HELLO, ShardHello(fleet="default/sensors/yard", shard=SHARD.name)),
    ]
    async with hub.control("hub", SHARD) as link:
        for bodies in forgeries:
            code, sentence = await refused(report(link, *bodies))
            assert code == grpc.StatusCode.PERMISSION_DENIED
            assert "a shard reports for itself" in sentence
        code, sentence = await refused(ClipsStub(link).Held(Clip(fleet="default/cameras/yard", sha256="0" * 64)))
        assert (code, "default/cameras/yard" in sentence) == (grpc.StatusCode.PERMISSION_DENIED, True)
        await report(link, HELLO, coverage(), smoke("real"), until="real")


async def test_no_shard_can_use_up_the_report_ids_of_another(hub: Site) -> None:
    thieves = (
        shard("default/sensors/yard", "yard-sensors-0"),  # of another fleet
        shard("default/sensors/yard", SHARD.name),  # with the same name
        shard(FLEET, "hall-sensors-1"),  # of the same fleet
    )
    for number, thief in enumerate(thieves):
        ids = [f"{number}E-{report}" for report in range(2, 10)]
        async with hub.control("hub", thief) as link:
            claims = [smoke(name, fleet=thief.fleet) for name in ids]
            for claim in claims:
                claim.zone = "decoy"
            claims[0].fleet = ""  # the stream's fleet counts
            await report(link, ShardHello(fleet=thief.fleet, shard=thief.name), *claims, until=ids[-1])
        async with hub.control("hub", SHARD) as link:
            for place in ("first", "last"):
                real = smoke(ids[0] if place == "first" else ids[-1])
                real.zone, real.level = f"hall-{number}-{place}", Level.CRITICAL.wire
                await report(link, HELLO, real, until=real.id)
                await report(link, HELLO, real, until=real.id)  # sent again
    async with hub.open("hub") as link:
        zones = (await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)).zones
    raised = {zone.name for zone in zones if any(item.level == Level.CRITICAL.wire for item in zone.contributions)}
    assert raised == {f"hall-{number}-{place}" for number in range(len(thieves)) for place in ("first", "last")}


async def test_an_inherited_report_takes_no_id_of_the_heirs_own_reports(watching: Site) -> None:
    names = "E-2", "n" * 301
    async with watching.control("shard", shard(FLEET, "hall-sensors-1")) as link:
        forged = [EvidenceItem(id=name, fleet=FLEET, episode="E", device="a") for name in names]
        code, sentence = await refused(ShardStub(link).Inherit(InheritRequest(reports=forged), timeout=10))
        assert (code, "300 characters" in sentence) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        answer = await ShardStub(link).Inherit(InheritRequest(reports=forged[:1]), timeout=10)
        assert list(answer.taken) == ["E-2"]
    spool = watching.folder / "shard" / f"{SHARD.name}.spool"
    with contextlib.closing(sqlite3.connect(spool)) as database:
        assert database.execute("SELECT id, episode FROM spool").fetchall() == [
            ("hall-sensors-1/E-2", "hall-sensors-1/E")
        ]


async def test_an_absurd_epoch_locks_nobody_out(hub: Site) -> None:
    async with hub.control("hub", OPERATOR) as link:
        await RosterStub(link).Set(ROSTER, timeout=10)
        absurd = FleetRoster(fleet=FLEET, epoch=LAST, deadline_ns=1)
        code, sentence = await refused(RosterStub(link).Set(absurd, timeout=10))
        assert (code, str(LAST) in sentence) == (grpc.StatusCode.FAILED_PRECONDITION, True)
    hub.end("hub")
    hub.start("hub")
    async with hub.control("hub", OPERATOR) as link:
        following = FleetRoster()
        following.CopyFrom(ROSTER)
        following.epoch = 4
        answer = await RosterStub(link).Set(following, wait_for_ready=True, timeout=30)
        assert answer.epochs == {FLEET: 4}


async def test_a_shard_accepts_only_its_own_assignments_with_plausible_epochs(watching: Site) -> None:
    def assignment(**changes: Any) -> Assignment:
        changed = Assignment()
        changed.CopyFrom(ASSIGNMENT)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed

    async with watching.control("shard", OPERATOR) as link:
        stub = ShardStub(link)
        for wrong in (
            assignment(epoch=LAST),
            assignment(epoch=4, shard="hall-sensors-1"),
            assignment(epoch=4, fleet="default/sensors/yard"),
        ):
            answer = await stub.Assign(wrong, timeout=10)
            assert (answer.accepted, answer.epoch, bool(answer.reason)) == (False, 3, True)
        assert (await stub.Assign(assignment(epoch=4), timeout=10)).accepted


async def test_absurd_counts_do_not_hide_plausible_ones(hub: Site) -> None:
    forged = Ledger(offered=LAST, analysed=LAST, shed={str(n): LAST for n in range(20)}, since_ns=1)
    async with hub.control("hub", SHARD) as link:
        await report(link, HELLO, coverage(forged), smoke("one"), until="one")
        later = Ledger(offered=LAST, analysed=LAST, since_ns=2)
        await report(link, HELLO, coverage(later), coverage(), smoke("two"), until="two")
    async with hub.control("hub", OPERATOR) as link:
        ledger = (await RosterStub(link).Set(ROSTER, timeout=10)).ledger
    assert (ledger.offered, ledger.analysed) == (1, 1)
    (device,) = hub.get("/v1/devices")["devices"]
    assert device["ledger"]["offered"] in {1, "1"}


async def test_without_a_certificate_control_is_served_on_this_machine_only(site: Site) -> None:
    site.start("hub", identity=False, host="0.0.0.0")
    async with site.open("hub") as link:
        await AlarmsStub(link).Zones(ZonesRequest(), wait_for_ready=True, timeout=30)
    port, control = site.ports["hub"][:2]
    async with channel(f"127.0.0.2:{port}", token=TOKEN) as link:
        await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)
    async with channel(f"127.0.0.2:{control}") as link:
        assert (await refused(RosterStub(link).Set(ROSTER, timeout=10)))[0] == grpc.StatusCode.UNAVAILABLE
    async with channel(f"{HOST}:{control}") as link:
        await RosterStub(link).Set(ROSTER, timeout=10)
    assert "control is served on 127.0.0.1 only" in site.log("hub")


async def test_a_missing_file_of_an_identity_is_named(site: Site) -> None:
    folder = site.issuer.folder(HUB)
    (folder / "tls.key").unlink()
    command = [sys.executable, "-m", "embereye_cli", "hub", "--data", str(site.folder / "d"), "--identity", str(folder)]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, f"--identity {folder}: tls.key cannot be read" in ended.stderr) == (2, True), ended.stderr
