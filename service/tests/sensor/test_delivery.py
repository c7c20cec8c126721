"""The outcome does not depend on how bytes are split, merged and interleaved, and no bytes break a session."""

import asyncio
import gc
import random
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.settings import sensor_settings
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from embereye.levels import Level
from embereye.process.tasks import Tasks
from embereye.sensor.device.status import measurements
from embereye.sensor.sessions import WAITING_LIMIT
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import Chip
from embereye.units import HOUR
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.shard_pb2 import Assignment, SensorSettings
from embereye.v1.types_pb2 import Device
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords
from embereye.wire.device.reader import MAX_LINE

CHIP = Chip(3)
SETTINGS = sensor_settings()
TIMED = {"temperature.rise", "temperature.over_normal", "counts.rise", "spot.growth"}  # they depend on the clock
QUIET = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Wire:
    """A transport without a network."""

    def __init__(self) -> None:
        self.written = b""
        self.paused = False
        self.unread = 0

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written += data
        self.unread += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        pass

    abort = close


@dataclass
class Bench:
    shard: SensorShard
    evidence: list[EvidenceItem]

    def connect(self) -> Any:
        session: Any = self.shard._sessions.protocol()
        session.connection_made(Wire())
        return session

    def outcome(self) -> list[Any]:
        outcome: list[Any] = [sorted(self.shard.garbage.items())]
        for device in self.shard.fleet.owned_devices.values():
            ledger = device.arrivals.ledger.message()
            ledger.since_ns = 0
            assert not ledger.waiting
            assert device.arrivals.ledger.waiting == 0
            ledger.ClearField("since_ns")  # only the time of its start may differ
            latest = [(name, round(value, 6)) for name, value, _ in measurements(device) if name not in TIMED]
            # A level of CLEAR equals no level.
            levels = sorted(item for item in device.levels._in_force.items() if item[1] > Level.CLEAR)
            outcome.append((device.spec.id, str(ledger), latest, levels))
        # A continuing sign is reported every second; the number of reports depends on the clock.
        outcome.append(sorted({(item.device, item.kind, item.level) for item in self.evidence}))
        return outcome


def make(*devices: str, **fields: Any) -> Bench:
    shard, evidence = SensorShard(), list[EvidenceItem]()
    options = ShardOptions("s", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
    settings = SensorSettings()
    settings.CopyFrom(SETTINGS)
    settings.MergeFrom(SensorSettings(window_ns=HOUR, **fields))
    shard._context = ShardContext(options, Tasks(), evidence.append, lambda: None)
    shard.apply(
        Assignment(
            fleet="default/sensors/test",
            epoch=1,
            devices=[Device(id=name, zone="hall") for name in devices],
            sensor=settings,
        )
    )
    return Bench(shard, evidence)


def line_of(dice: random.Random, device: str) -> bytes:
    kind = dice.random()
    if kind < 0.6:
        smoke, flame = dice.choice([280, 290, 700, 1100, 4000]), dice.choice([1305, 1310, 2400, 3300])
        end = dice.choice([b"!\r\n", b"!", b"!\n", b"!\r\n\r\n"])
        name = dice.choice([device.encode(), b":" + device.encode()])
        return b"#Sensor%s:ADC1=%d,ADC2=%d,ADC3=%d,DIO=%d" % (name, smoke, flame, dice.choice([2, 400, 1500, 2500]),
                                                             dice.random() < 0.1) + end  # fmt: skip
    if kind < 0.7:
        return b"#Sensor%s:ADC1:=%.1f,MPY30=0!\r\n" % (device.encode(), dice.uniform(250, 900))
    if kind < 0.8:
        return encode(FrameWords(device, CHIP.frame(dice.choice([0.0, 0.0, 0.3]), dice.randrange(4))))
    if kind < 0.85:
        return encode(Eeprom(device, CHIP.eeprom))
    if kind < 0.9:
        return b"#Sensor%s:ADC1=99999999,ADC2=1,ADC3=1,DIO=0!" % device.encode()
    name = device.encode()
    strange = [b"rubbish!", b"#frame:12!", b"#Sensor:ADC1=x!", b"#Sensora:AD#Sensor%s:ADC1=300!" % name]
    strange += [b"x" * (MAX_LINE + 5) + b"!", b"12#Sensor%s:ADC1=280,ADC2=1,ADC3=1,DIO=0!" % name]
    return dice.choice(strange)


def streams(seed: int, lines: int) -> list[bytes]:
    dice = random.Random(seed)
    return [
        b"#serialno:%s!" % name + b"".join(line_of(dice, name.decode()) for _ in range(lines)) for name in (b"a", b"b")
    ]


async def deliver(texts: Sequence[bytes], cuts: random.Random, largest: int, flush: float) -> list[Any]:
    bench = make("a", "b")
    sessions = [bench.connect() for _ in texts]
    positions = [0] * len(texts)
    while any(position < len(text) for position, text in zip(positions, texts, strict=True)):
        number = cuts.randrange(len(texts))
        start = positions[number]
        positions[number] += cuts.randint(1, largest)
        if part := texts[number][start : positions[number]]:
            sessions[number].data_received(part)
        if cuts.random() < flush:
            bench.shard.batcher.flush()
    bench.shard.batcher.flush()
    return bench.outcome()


@QUIET
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 10_000), largest=st.sampled_from([1, 7, 60, 500, 5000, 10**6]),
       flush=st.sampled_from([0.0, 0.05, 0.5]))  # fmt: skip
@example(seed=1, cut=1, largest=1, flush=0.05)
@example(seed=1871, cut=0, largest=1, flush=0.05)
def test_split_merged_and_interleaved_delivery_have_the_same_outcome(
    seed: int, cut: int, largest: int, flush: float
) -> None:
    texts = streams(seed, 3 if largest == 1 else 15)

    async def both() -> tuple[list[Any], list[Any]]:
        whole = await deliver(texts, random.Random(0), 10**9, 1.0)
        return whole, await deliver(texts, random.Random(cut), largest, flush)

    whole, parts = asyncio.run(both())
    assert parts == whole


PIECES = [b"#Sensor", b"#Sensora:", b"ADC1=", b"ADC2:=", b"!", b"\r\n", b"#frame", b"#EEPROMa:", b"=", b",", b"9" * 400]
PIECES += [b"#serialno:", b"#locid:b!", b"1e999", b"\xff\x00", b"FFB8" * 834, b"DIO=1!", b"nan", b"#" * 50]


@QUIET
@given(chunks=st.lists(st.one_of(st.binary(max_size=200), st.sampled_from(PIECES)), max_size=60), flush=st.booleans())
@example(chunks=[b"#Sensora:ADC1=1,ADC2=1,ADC3=1,DIO=1e999!", b"#Sensora:ADC1=1,ADC2=1,ADC3=1,DIO=0!"], flush=True)
@example(chunks=[b"#EEPROMa:" + b"0" * 3328 + b"!", b"#framea:" + b"FFB8" * 834 + b"!"], flush=False)
def test_no_bytes_break_a_session_or_accumulate(chunks: list[bytes], flush: bool) -> None:
    async def feed() -> None:
        bench = make("a")
        session, other = bench.connect(), bench.connect()
        for chunk in chunks:
            session.data_received(chunk)
            if flush:
                bench.shard.batcher.flush()
            assert session.reader.pending <= MAX_LINE + 2
        bench.shard.batcher.flush()
        other.data_received(b"#Sensora:ADC1=281,ADC2=1305,ADC3=2,DIO=0!\r\n")
        bench.shard.batcher.flush()
        assert bench.shard.batcher.waiting == 0
        device = bench.shard.fleet.owned_devices["a"]
        assert device.arrivals.ledger.waiting == 0
        assert {name: value for name, value, _ in measurements(device)}["smoke"] == pytest.approx(281 / 40.95)

    asyncio.run(feed())


def test_the_newer_of_two_connections_speaks_for_a_device_and_the_ledger_says_so() -> None:
    async def both() -> None:
        bench = make("a")
        line = b"#Sensora:ADC1=281,ADC2=1305,ADC3=2,DIO=0!\r\n"
        older, newer = bench.connect(), bench.connect()
        for session in (older, newer, older, newer, older):
            session.data_received(line)
            bench.shard.batcher.flush()
        device = bench.shard.fleet.owned_devices["a"]
        assert device.arrivals.ledger.message().takeovers == 1
        assert dict(device.arrivals.ledger.rejected) == {"a newer connection speaks for it": 2}
        assert (device.arrivals.ledger.offered, device.arrivals.ledger.analysed) == (5, 3)
        newer.connection_lost(None)
        older.data_received(line)
        bench.shard.batcher.flush()
        assert device.arrivals.ledger.analysed == 4

    asyncio.run(both())


def endless_line(megabytes: int) -> None:
    async def feed() -> None:
        bench = make("a", "b")
        liar, honest = bench.connect(), bench.connect()
        for number in range(megabytes * 16):
            liar.data_received(b"#framea:" if not number else b"F" * 65536)
            if number % 16 == 0:
                honest.data_received(b"#Sensorb:ADC1=281,ADC2=1305,ADC3=2,DIO=0!\r\n")
            if liar._transport.paused:
                bench.shard.batcher.flush()
            assert liar.reader.waiting <= WAITING_LIMIT + 65536
            assert liar.reader.pending <= MAX_LINE
        bench.shard.batcher.flush()
        assert bench.shard.fleet.owned_devices["b"].arrivals.ledger.analysed == megabytes
        assert dict(bench.shard.garbage) == {"too long": 1}

    asyncio.run(feed())


def test_a_line_without_an_end_costs_only_itself() -> None:
    endless_line(32)


@pytest.mark.slow
def test_four_gigabytes_in_one_line_cost_only_themselves() -> None:
    endless_line(4096)


def test_a_device_that_never_reads_gets_no_more_commands() -> None:
    async def ask() -> None:
        bench = make("a")
        session = bench.connect()
        session.data_received(b"#serialno:a!")
        bench.shard.batcher.flush()
        for _ in range(3000):
            session.command("REQUEST1")
        assert len(session._transport.written) < 5000

    asyncio.run(ask())


def flood_of_frames(overflow: "SensorSettings.Overflow.ValueType") -> Bench:
    bench = make("a", "b", overflow=overflow, queue_capacity=10)
    session, other = bench.connect(), bench.connect()
    session.data_received(encode(Eeprom("a", CHIP.eeprom)))
    other.data_received(b"#Sensorb:ADC1=281,ADC2=1305,ADC3=2,DIO=0!\r\n")
    frames = [encode(FrameWords("a", CHIP.frame(0.0, number))) for number in range(17)]
    frames[3] = encode(FrameWords("a", CHIP.frame(0.5, 0)))  # one frame of a fire
    session.data_received(b"".join(frames))
    bench.shard.batcher.flush()
    return bench


def test_a_spike_survives_compaction_and_every_frame_is_accounted_for() -> None:
    async def compact() -> None:
        bench = flood_of_frames(SensorSettings.OVERFLOW_COMPACT)
        ledger = bench.shard.fleet.owned_devices["a"].arrivals.ledger
        assert (ledger.offered, ledger.analysed, dict(ledger.shed)) == (18, 11, {"compacted": 7})
        assert [item.device for item in bench.evidence] == ["a"]
        assert bench.shard.fleet.owned_devices["b"].arrivals.ledger.analysed == 1

    asyncio.run(compact())


def backlog(overflow: "SensorSettings.Overflow.ValueType", smoke: list[int]) -> Bench:
    bench = make("a", overflow=overflow, queue_capacity=10)
    session = bench.connect()
    line = b"#Sensora:ADC1=%d,ADC2=1305,ADC3=2,DIO=0!\r\n"
    session.data_received(line % 280)
    bench.shard.batcher.flush()
    session.data_received(b"".join(line % value for value in smoke))
    bench.shard.batcher.flush()
    return bench


SPIKE = [280] * 50 + [4000] + [280] * 50 + [99_999] + [280] * 50


def test_a_backlog_is_replaced_by_a_summary_and_the_evidence_mentions_it() -> None:
    async def compact() -> None:
        bench = backlog(SensorSettings.OVERFLOW_COMPACT, SPIKE)
        ledger = bench.shard.fleet.owned_devices["a"].arrivals.ledger
        assert (ledger.offered, ledger.analysed, dict(ledger.shed)) == (153, 11, {"compacted": 142})
        [item] = bench.evidence
        assert item.level == Level.ALARM
        terms = {term.name: term.value for term in item.why}
        assert (terms["smoke.lowest"], terms["smoke.highest"], terms["smoke.last"]) == (280, 4000, 280)
        assert "smoke.slope" in terms
        assert "142 readings" in item.note

    asyncio.run(compact())


def test_drop_oldest_loses_a_spike() -> None:
    async def drop() -> None:
        bench = backlog(SensorSettings.OVERFLOW_DROP_OLDEST, SPIKE)
        ledger = bench.shard.fleet.owned_devices["a"].arrivals.ledger
        assert (ledger.offered, ledger.analysed, dict(ledger.shed)) == (153, 11, {"overflow": 142})
        assert not bench.evidence

    asyncio.run(drop())


def test_drop_oldest_retains_the_newest_readings() -> None:
    async def drop() -> None:
        bench = flood_of_frames(SensorSettings.OVERFLOW_DROP_OLDEST)
        ledger = bench.shard.fleet.owned_devices["a"].arrivals.ledger
        assert (ledger.offered, ledger.analysed, dict(ledger.shed)) == (18, 11, {"overflow": 7})
        assert not bench.evidence

    asyncio.run(drop())


def test_readings_that_jump_up_and_down_cost_bounded_time_and_still_alarm() -> None:
    async def jump() -> None:
        bench = make("a")
        session = bench.connect()
        low, high = (b"#Sensora:ADC1=%d,ADC2=1305,ADC3=2,DIO=0!\r\n" % smoke for smoke in (280, 4000))
        session.data_received(low)
        session.data_received((low + high) * 300)
        bench.shard.batcher.flush()
        ledger = bench.shard.fleet.owned_devices["a"].arrivals.ledger
        assert ledger.offered == 601
        assert ledger.analysed + ledger.shed["compacted"] == 601
        assert ledger.shed["compacted"] > 500
        assert bench.evidence

    asyncio.run(jump())


def test_a_line_that_crosses_a_threshold_does_not_wait_for_the_tick() -> None:
    async def cross() -> None:
        bench = make("a")  # its window is an hour
        session = bench.connect()
        for smoke in (280, 4000):
            session.data_received(b"#Sensora:ADC1=%d,ADC2=1305,ADC3=2,DIO=0!\r\n" % smoke)
            await asyncio.sleep(0.01)
        assert bench.evidence

    asyncio.run(cross())


async def test_a_connection_does_not_retain_devices_that_the_shard_forgot() -> None:
    bench = make("a")
    gateway = bench.connect()
    shown = []
    for number in range(100):
        gateway.data_received(b"#Sensorghost-%d:ADC1=300!" % number)
        bench.shard.batcher.flush()
        shown += map(weakref.ref, bench.shard.fleet._undeclared.values())
        bench.shard.fleet.forget_undeclared(since_ns=2**62)
    assert len(shown) == 100
    gc.collect()
    assert not any(ghost() for ghost in shown)


async def test_a_connection_without_a_device_of_the_fleet_makes_room_for_others() -> None:
    bench = make("a", "b")
    bench.shard._sessions._open.most = 3

    def dial(line: bytes) -> Any:
        session = bench.connect()
        session.data_received(line)
        bench.shard.batcher.flush()
        return session

    device = dial(b"#Sensora:ADC1=280,ADC2=1305,ADC3=2,DIO=0!")
    strangers = [dial(b"#serialno:x!"), dial(b"#Sensory:ADC1=280!")]
    other = dial(b"#Sensorb:ADC1=280!")
    assert set(bench.shard._sessions._open) == {device, strangers[1], other}
    another = dial(b"#Sensorb:ADC1=281!")
    assert set(bench.shard._sessions._open) == {device, other, another}
    stranger = dial(b"#serialno:x!")  # replaces the connection that `another` has superseded
    assert set(bench.shard._sessions._open) == {device, another, stranger}
    assert bench.shard.fleet.owned_devices["b"].arrivals.ledger.message().analysed == 2
