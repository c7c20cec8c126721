"""The access rules of a fleet (spec.access) at a sensor shard, over the wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from harness.calls import await_refusal
from harness.eventually import eventually
from harness.settings import sensor_settings

from embereye.process.addresses import free_port
from embereye.process.grpc_server import GrpcServer, channel
from embereye.process.tasks import Tasks
from embereye.sensor.grpc.ingest import _Stream
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import SensorSpec, run_sensors
from embereye.v1.ingest_pb2 import AskRequest, AskResponse, DeviceBatch, IngestRequest, IngestResponse, Reading
from embereye.v1.ingest_pb2_grpc import IngestStub, SensorsStub
from embereye.v1.shard_pb2 import AccessRules, Assignment, ClientCertificates, SensorSettings
from embereye.v1.types_pb2 import Device

FLEETS, ONES = "a-token-of-the-whole-fleet", "a-token-of-one-device"


class Running:
    def __init__(self, shard: SensorShard, tcp: int, grpc_port: int) -> None:
        self.shard, self.tcp, self.grpc = shard, tcp, f"127.0.0.1:{grpc_port}"
        self.epoch = 0

    def restrict(self, rules: AccessRules | None) -> None:
        self.epoch += 1
        settings = SensorSettings()
        settings.CopyFrom(sensor_settings())
        if rules is not None:
            settings.access.CopyFrom(rules)
        devices = [Device(id=name, zone="hall") for name in ("s-01", "s-02")]
        self.shard.apply(Assignment(fleet="default/sensors/t", epoch=self.epoch, devices=devices, sensor=settings))

    async def send(self, token: str, *devices: str) -> int:
        """The number of devices with acknowledged readings; AioRpcError if the stream is refused."""
        return await await_refusal(lambda pause: self._send(pause, token, *devices))

    async def _send(self, pause: float, token: str, *devices: str) -> int:
        shown = (("authorization", f"Bearer {token}"),) if token else ()
        async with channel(self.grpc) as link:
            call = IngestStub(link).Stream(metadata=shown, timeout=10)
            batches = [
                DeviceBatch(device=name, epoch=1, readings=[Reading(sequence=1, smoke_adc=280)]) for name in devices
            ]
            # The reading side raises the reason.
            with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                await asyncio.sleep(pause)
                await call.write(IngestRequest(devices=batches))
            response = await call.read()
            call.cancel()
            return len(response.ack.watermarks) if isinstance(response, IngestResponse) else 0


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    folder = tmp_path / "devices-of-t"
    folder.mkdir()
    (folder / "token").write_text(f"{FLEETS}\n")
    (folder / "devices").write_text(f"s-01 {ONES}\n")
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path))
    shard, tcp = SensorShard(), free_port()
    async with Tasks() as tasks:
        options = ShardOptions("s", Path("none"), "", None, "127.0.0.1", 0, tcp, 0, 0, 0)
        await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
        server = GrpcServer(shard.services())
        port = server.listen("127.0.0.1:0")
        await server.start()
        yield Running(shard, tcp, port)
        await server.stop(0)
        await shard.stop()


async def test_only_a_sender_with_a_token_is_admitted_and_only_for_its_device(running: Running) -> None:
    running.restrict(AccessRules(tokens="devices-of-t"))
    assert await running.send(FLEETS, "s-01", "s-02") == 2
    assert await running.send(ONES, "s-01") == 1
    for token, device, code, word in (
        ("", "s-01", grpc.StatusCode.UNAUTHENTICATED, "need a token"),
        ("a-token-that-nobody-gave", "s-01", grpc.StatusCode.UNAUTHENTICATED, "need a token"),
        (ONES, "s-02", grpc.StatusCode.PERMISSION_DENIED, 'are for device "s-01", not for "s-02"'),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.send(token, device)
        assert caught.value.code() == code
        assert word in (caught.value.details() or "")


async def test_a_fleet_without_access_rules_admits_every_sender(running: Running) -> None:
    running.restrict(None)
    assert await running.send("", "s-01") == 1


async def test_a_text_device_is_refused_while_its_fleet_requires_tokens(
    running: Running,
) -> None:
    running.restrict(None)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
    assert await asyncio.wait_for(reader.readexactly(9), 10) == b"PERIOD_ON"
    running.restrict(AccessRules(tokens="devices-of-t"))
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    running.restrict(AccessRules(networks=["10.0.0.0/8"]))  # and loopback
    reader, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
    assert await asyncio.wait_for(reader.readexactly(9), 10) == b"PERIOD_ON"
    writer.close()


async def test_open_streams_are_checked_again_when_access_is_restricted(running: Running) -> None:
    running.restrict(None)
    async with channel(running.grpc) as link:
        call = IngestStub(link).Stream(timeout=10)
        await call.write(IngestRequest(devices=[DeviceBatch(device="s-01", epoch=1, readings=[Reading(sequence=1)])]))
        await call.read()
        running.restrict(AccessRules(tokens="devices-of-t"))
        assert await asyncio.wait_for(call.code(), 10) is not grpc.StatusCode.OK


async def test_requests_that_wait_when_access_is_restricted_are_dropped(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.restrict(None)
    monkeypatch.setattr("embereye.sensor.grpc.ingest.WINDOW", 3600.0)  # seconds that a second request waits
    async with channel(running.grpc) as link:
        call = IngestStub(link).Stream(timeout=20)
        for name in ("s-01", "s-02"):
            batch = DeviceBatch(device=name, epoch=1, readings=[Reading(sequence=1, smoke_adc=280)])
            await call.write(IngestRequest(devices=[batch]))
        await eventually(lambda: running.shard._ingest._waiting, 20)
        running.restrict(AccessRules(tokens="devices-of-t"))
        call.cancel()
    assert heard(running, "s-02") == 0


async def test_lines_of_a_text_device_that_lost_access_are_ignored(running: Running) -> None:
    """While TLS ends a connection, what was encrypted before is still read."""
    running.restrict(None)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
    assert await asyncio.wait_for(reader.readexactly(9), 10) == b"PERIOD_ON"
    (session,) = running.shard._sessions._open
    running.restrict(AccessRules(tokens="devices-of-t"))
    session.data_received(b"#Sensors-01:ADC1=280,ADC2=1305,ADC3=2,DIO=0!\r\n")
    running.shard.batcher.flush()
    assert heard(running, "s-01") == 0
    writer.close()


async def test_who_may_speak_for_another_device_alone_from_now_on_is_heard_as_no_other(running: Running) -> None:
    """For example, a gateway is removed from the list of gateways."""
    match = ClientCertificates(field=ClientCertificates.FIELD_COMMON_NAME, match="*", gateways=["s-02"])
    running.restrict(AccessRules(certificates=match))
    session, connection = running.shard._sessions.protocol(), Certified("s-02")
    session.begin("10.0.0.1", connection.abort)
    session.connection_made(connection)
    line = b"#Sensors-01:ADC1=280,ADC2=1305,ADC3=2,DIO=0!\r\n"
    for _ in range(3):
        session.data_received(line)
        running.shard.batcher.flush()
    assert heard(running, "s-01") == 3
    del match.gateways[:]
    running.restrict(AccessRules(certificates=match))
    for _ in range(3):
        session.data_received(line)
        running.shard.batcher.flush()
    assert heard(running, "s-01") == 3
    assert connection.closed


async def test_a_gateway_that_may_not_speak_for_its_devices_is_told_of_once(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    match = ClientCertificates(field=ClientCertificates.FIELD_COMMON_NAME, match="*")
    running.restrict(AccessRules(certificates=match))
    session, connection = running.shard._sessions.protocol(), Certified("gateway")
    session.begin("10.0.0.1", connection.abort)
    session.connection_made(connection)
    for number in range(100):
        session.data_received(b"#Sensors-%02d:ADC1=280,ADC2=1305,ADC3=2,DIO=0!\r\n" % number)
    running.shard.batcher.flush()
    assert running.shard.garbage["certificate of another device"] == 100
    logged = [record.getMessage() for record in caplog.records if "10.0.0.1" in record.getMessage()]
    assert logged == [
        'text device at 10.0.0.1: refused: its certificate is for device "gateway", but it sends as "s-00"'
    ]


class Certified(asyncio.Transport):
    """A connection without a network, on which a certificate was shown."""

    closed = False

    def __init__(self, name: str) -> None:
        certificate = {"subject": ((("commonName", name),),), "notAfter": "Jan  1 00:00:00 2100 GMT"}
        super().__init__({"peername": ("10.0.0.1", 1), "peercert": certificate})

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write(self, data: object) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize(("rules", "count"), [(None, 1), (AccessRules(tokens="devices-of-t"), 0)])
async def test_what_waits_for_the_first_assignment_is_judged_by_its_rules(
    running: Running, rules: AccessRules | None, count: int
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", running.tcp)
    await eventually(lambda: running.shard._sessions._open, 20)
    (session,) = running.shard._sessions._open
    session.data_received(b"#Sensors-01:ADC1=280,ADC2=1305,ADC3=2,DIO=0!\r\n")
    running.restrict(rules)
    running.shard.batcher.flush()
    assert heard(running, "s-01") == count
    writer.close()


def heard(running: Running, device: str) -> int:
    """The number of analysed readings of `device`."""
    owned = running.shard.fleet.owned(device)
    assert owned is not None
    return int(owned.arrivals.ledger.message().analysed)


async def test_a_stream_that_is_ended_while_its_first_answer_is_on_its_way_is_told_why(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.restrict(None)
    flush = _Stream.flush

    async def restrict_meanwhile(stream: _Stream) -> None:
        sending = asyncio.ensure_future(flush(stream))
        await asyncio.sleep(0)
        running.restrict(AccessRules(tokens="devices-of-t"))
        await sending

    monkeypatch.setattr(_Stream, "flush", restrict_meanwhile)
    async with channel(running.grpc) as link:
        call = IngestStub(link).Stream(timeout=20)
        await call.write(IngestRequest(devices=[DeviceBatch(device="s-01", epoch=1, readings=[Reading(sequence=1)])]))
        await call.read()
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert await call.details() == "the access rules have changed: dial again"


async def test_only_who_may_speak_for_a_device_asks_it_for_anything(running: Running) -> None:
    async def ask(token: str, device: str) -> AskResponse:
        async with channel(running.grpc, token=token) as link:
            return await SensorsStub(link).Ask(AskRequest(device=device, word=AskRequest.WORD_FRAME), timeout=10)

    running.restrict(AccessRules(tokens="devices-of-t"))
    assert "has no text connection" in (await ask(FLEETS, "s-01")).reason
    assert "has no text connection" in (await ask(ONES, "s-01")).reason
    for token, device, code in (
        ("", "s-01", grpc.StatusCode.UNAUTHENTICATED),
        (ONES, "s-02", grpc.StatusCode.PERMISSION_DENIED),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(token, device)
        assert caught.value.code() == code


async def test_our_own_client_shows_its_token(running: Running) -> None:
    running.restrict(AccessRules(tokens="devices-of-t"))
    stop = asyncio.Event()
    specs = [SensorSpec("s-01", "hall")]
    sending = asyncio.create_task(run_sensors(specs, running.grpc, stop, grpc=True, frame_rate=0, token=ONES))
    await eventually(lambda: running.shard.fleet.owned("s-01").arrivals.ledger.analysed, 20)
    stop.set()
    assert (await sending).readings
