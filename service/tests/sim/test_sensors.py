"""Simulated sensor devices over loopback TCP."""

import argparse
import asyncio
import random
import socket
from argparse import ArgumentTypeError
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
from harness.eventually import eventually
from harness.settings import HEAT, sensor_settings

from embereye.detect.sensing.thresholds import Thresholds
from embereye.detect.thermal.heat import HeatWatch
from embereye.detect.thermal.mlx90640 import Calibration, words_of
from embereye.levels import Level
from embereye.process.addresses import free_port
from embereye.process.lifecycle import UserError
from embereye.sim import sensors
from embereye.sim.scenes.fire import Fire
from embereye.sim.sensors import Chip, SensorSpec, SensorStats, run_sensors
from embereye.units import split_address
from embereye.wire.device.commands import CALIBRATION, REQUEST, START
from embereye.wire.device.messages import Eeprom, FrameWords, Garbage, Message, SensorReading, SerialNumber
from embereye.wire.device.reader import LineReader
from embereye_cli.simulate import sensors as simulate_sensors

PATIENCE = 30.0  # seconds; only a broken simulator needs them


class Server:
    """A shard's text listener, as devices see it."""

    def __init__(self, greeting: str = START) -> None:
        self.greeting = greeting
        self.received: list[list[Message]] = []  # by connection
        self.writers: list[asyncio.StreamWriter] = []
        self.changed = asyncio.Condition()
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        messages: list[Message] = []
        self.received.append(messages)
        self.writers.append(writer)
        writer.write(self.greeting.encode())
        parser = LineReader()
        while data := await reader.read(65536):
            messages += parser.feed(data)
            async with self.changed:
                self.changed.notify_all()
        writer.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(condition)

    def all(self, kind: type[Message]) -> list[Message]:
        return [message for messages in self.received for message in messages if isinstance(message, kind)]


@asynccontextmanager
async def serving(greeting: str = START, port: int = 0) -> AsyncIterator[Server]:
    state = Server(greeting)
    server = await asyncio.start_server(state.serve, "127.0.0.1", port)
    state.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()
        for writer in state.writers:
            writer.close()


@asynccontextmanager
async def simulating(target: str, *specs: SensorSpec, rate: float = 50, frame_rate: float = 20,
                     fires: tuple[Fire, ...] = ()) -> AsyncIterator[SensorStats]:  # fmt: skip
    stop, stats = asyncio.Event(), SensorStats()
    task = asyncio.create_task(
        run_sensors(specs, target, stop, rate=rate, frame_rate=frame_rate, seed=1, fires=fires, stats=stats)
    )
    try:
        yield stats
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE)
        assert stats.connected == 0


async def test_a_device_identifies_itself_and_streams_on_command() -> None:
    async with serving() as server, simulating(server.address, SensorSpec("a"), SensorSpec("b")):
        await server.until(lambda: len(server.all(FrameWords)) >= 6 and len(server.all(SensorReading)) >= 10)
        assert sorted(str(messages[0].id) for messages in server.received) == ["a", "b"]
        assert not server.all(Garbage)
        for messages in server.received:
            name = messages[0].id
            assert all(message.location == name for message in messages[1:])


async def test_a_device_starts_alone_without_a_command() -> None:
    async with serving(greeting="") as server, simulating(server.address, SensorSpec("a")):
        await server.until(lambda: bool(server.all(SensorReading)))


async def test_calibration_and_frames_are_sent_on_request_and_show_the_room() -> None:
    async with (
        serving(greeting=START + CALIBRATION + REQUEST) as server,
        simulating(server.address, SensorSpec("a"), rate=0, frame_rate=0) as stats,
    ):
        await server.until(lambda: len(server.received[0]) == 3 if server.received else False)
        serial, eeprom, frame = server.received[0]
        assert serial == SerialNumber("a")
        assert isinstance(eeprom, Eeprom)
        assert isinstance(frame, FrameWords)
        celsius = Calibration.from_eeprom(eeprom.words).temperatures(words_of(frame.words)[None])
        assert celsius.mean() == pytest.approx(22.5, abs=0.3)
        assert celsius.std() < 1
        assert (stats.calibrations, stats.frames, stats.readings) == (1, 1, 0)
        server.writers[0].write(REQUEST.encode() * 2)
        await server.until(lambda: len(server.all(FrameWords)) == 3)


async def test_a_lost_connection_is_reopened() -> None:
    async with serving() as server, simulating(server.address, SensorSpec("a")) as stats:
        await server.until(lambda: bool(server.all(SensorReading)))
        server.writers[0].transport.abort()
        await server.until(lambda: len(server.received) == 2 and len(server.received[1]) > 2)
        assert server.received[1][0] == SerialNumber("a")
        assert (stats.connections, stats.lost) == (2, 1)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
async def test_a_connection_to_a_node_that_is_off_ends_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a soak, sensors were dark for three minutes after a node was cut off: the kernel sent again all that time."""
    options: list[int] = []
    made = sensors._Connection.connection_made

    def connection_made(self: sensors._Connection, transport: asyncio.Transport) -> None:
        made(self, transport)
        handle = transport.get_extra_info("socket")
        options.append(handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

    monkeypatch.setattr(sensors._Connection, "connection_made", connection_made)
    async with serving() as server, simulating(server.address, SensorSpec("a")):
        await server.until(lambda: bool(server.received))
    assert options == [sensors.STALLED_SECONDS * 1000]


async def test_a_device_waits_for_a_server_that_is_not_running_yet() -> None:
    port = free_port()
    async with simulating(f"127.0.0.1:{port}", SensorSpec("a")) as stats:
        await eventually(lambda: stats.failures, PATIENCE)
        async with serving(port=port) as server:
            await server.until(lambda: bool(server.all(SensorReading)))


async def test_each_connection_asks_for_its_target_again() -> None:
    async with serving() as first, serving() as second:
        stop = asyncio.Event()
        targets = {"a": first.address}
        task = asyncio.create_task(run_sensors([SensorSpec("a")], targets.__getitem__, stop, frame_rate=0))
        await first.until(lambda: bool(first.all(SensorReading)))
        targets["a"] = second.address
        first.writers[0].close()
        await second.until(lambda: bool(second.all(SensorReading)))
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


async def test_a_fire_is_seen_by_the_devices_of_its_zone_only() -> None:
    fire = Fire(at=0, duration=600, zone="hall")
    specs = (SensorSpec("in", "hall"), SensorSpec("out", "yard"))
    async with serving(START + CALIBRATION) as server, simulating(server.address, *specs, fires=(fire,)):

        def hottest(name: str) -> float:
            messages = next((m for m in server.received if m and m[0] == SerialNumber(name)), [])
            eeproms = [m for m in messages if isinstance(m, Eeprom)]
            frames = [words_of(m.words) for m in messages if isinstance(m, FrameWords)]
            if not eeproms or not frames:
                return 0.0
            return float(Calibration.from_eeprom(eeproms[0].words).temperatures(np.stack(frames)).max())

        await server.until(lambda: hottest("in") > 100 and hottest("out") > 0)
        assert hottest("out") < 26
        detected = [m.location for m in server.all(SensorReading) if isinstance(m, SensorReading) and m.flame_detected]
        await server.until(lambda: len(server.all(SensorReading)) > 4)
        assert set(detected) <= {"in"}


async def test_a_server_that_reads_nothing_costs_packets_not_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "STALLED_SECONDS", 0.2)
    release = asyncio.Event()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0, limit=1024)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with simulating(target, SensorSpec("a"), rate=0, frame_rate=20_000) as stats:
        await eventually(lambda: stats.dropped and stats.connections > 1, PATIENCE)
    release.set()
    server.close()


def test_a_chip_at_rest_and_in_a_fire_matches_the_thresholds() -> None:
    chip = Chip(7)
    calibration = Calibration.from_eeprom(chip.eeprom)

    def level(strength: float) -> int:
        frames = np.stack([words_of(chip.frame(strength, number)) for number in range(3)])
        watch = HeatWatch(HEAT)
        return max(watch.observe(c, n * 10**9 + 1).level for n, c in enumerate(calibration.temperatures(frames)))

    assert level(0) == Level.CLEAR
    assert level(0.1) >= Level.PRE_ALARM
    assert level(1) == Level.CRITICAL


def test_readings_at_rest_are_no_evidence_and_those_of_a_fire_all_alarm() -> None:
    dice, thresholds = random.Random(1), Thresholds(sensor_settings())

    def levels(strength: float) -> list[int]:
        reading = sensors.reading(dice, strength)
        assert reading.smoke_adc is not None
        assert reading.gas_adc is not None
        return [
            thresholds.assess_smoke(reading.smoke_adc).level,
            thresholds.assess_flame(reading.flame_adc, reading.flame_detected).level,
            thresholds.assess_gas(reading.gas_adc).level,
        ]

    for _ in range(200):
        assert levels(0) == [Level.CLEAR] * 3
    assert levels(1) == [Level.ALARM] * 3


def test_the_same_seed_gives_the_same_chip() -> None:
    assert Chip(3).eeprom == Chip(3).eeprom != Chip(4).eeprom
    assert Chip(3).frame(0, 0) == Chip(3).frame(0, 0)


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    simulate_sensors.add_arguments(parser)
    return parser.parse_args(["--target", "127.0.0.1:9", *arguments])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--target", "nowhere"], "--target nowhere is not HOST:PORT"),
        (["--target", "host:0"], "--target host:0 is not HOST:PORT"),
        (["--target", "shard..hall:9001"], 'target shard..hall:9001: "shard..hall" is not a valid host name'),
        (["--count", "0"], "--count 0 is not at least 1"),
        (["--rate", "-1"], "--rate -1 is not between"),
        (["--frame-rate", "nan"], "--frame-rate nan is not between"),
        (["--fire", "at=now"], "at=now is not a number of seconds"),
        (["--fire", "at=1,device=x"], "no simulated device is there"),
    ],
)
def test_senseless_arguments_are_named(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        simulate_sensors.run(parse(*arguments))


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        ("a=x,,b=x", "cannot be a name"),
        ("a=x,a=y", "a is listed twice"),
        ("1234", r"1234 has no zone\. Write 1234=ZONE\."),
    ],
)
def test_senseless_devices_are_named_before_anything_else(devices: str, sentence: str) -> None:
    with pytest.raises(ArgumentTypeError, match=sentence):
        simulate_sensors.parse_devices(devices)


def test_devices_are_named_or_counted() -> None:
    assert simulate_sensors.parse_devices("a=hall, b=yard") == [
        SensorSpec("a", "hall"),
        SensorSpec("b", "yard"),
    ]
    assert [(spec.id, spec.zone) for spec in simulate_sensors.count_devices(5)][3:] == [
        ("sensor-0004", "zone-01"),
        ("sensor-0005", "zone-02"),
    ]
    assert split_address("[::1]:9001") == ("::1", 9001)


def test_the_command_ends_on_time_and_reports_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert simulate_sensors.run(parse("--target", f"127.0.0.1:{port}", "--count", "2", "--duration", "1.5")) == 0
    assert capsys.readouterr().out.startswith("2 devices: ")


def test_the_command_fails_where_nobody_acknowledges_anything(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"127.0.0.1:{free_port()}"
    assert simulate_sensors.run(parse("--target", target, "--grpc", "--frame-rate", "0", "--duration", "1")) == 1
    out = capsys.readouterr().out
    assert "; 0 acknowledged, " in out
    assert "byte" not in out, "bytes are counted only for text"
