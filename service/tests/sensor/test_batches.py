"""gRPC batches that lie about themselves: every item is accounted for, and none ends the stream."""

import asyncio
import math
import random
from typing import Any

import pytest
from harness.settings import sensor_settings
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from embereye.sensor.shard import SensorShard
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, Reading, ReadingColumns, ThermalFrame
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device
from embereye.wire.batches import Request

SETTINGS = sensor_settings()

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
sequences = st.one_of(st.integers(0, 12), st.sampled_from([2**62, 2**63 - 1, 2**63, 2**64 - 1]))
floats = st.one_of(st.floats(width=32), st.floats(0, 4095, width=32))
readings = st.builds(
    Reading,
    sequence=sequences,
    time_ns=st.integers(-(2**63), 2**63 - 1),
    smoke_adc=st.none() | floats,
    gas_adc=st.none() | floats,
    flame_detected=st.none() | st.booleans(),
)
columns = st.builds(
    ReadingColumns,
    first_sequence=sequences,
    time_ns=st.lists(st.integers(-1, 1), max_size=6),
    smoke_adc=st.lists(floats, max_size=8),
    flame_adc=st.lists(floats, max_size=8),
    flame_detected=st.lists(floats, max_size=8),
)
WORDS = {"none": b"", "odd": b"\x01", "short": bytes(1536), "long": bytes(1668), "ones": b"\xff" * 1668}
EEPROMS = {"none": b"", "odd": b"x", "blank": bytes(1664), "random": random.Random(1).randbytes(1664)}
frames = st.builds(ThermalFrame, sequence=sequences, words=st.sampled_from(sorted(WORDS)).map(lambda name: WORDS[name]))
batches = st.builds(
    DeviceBatch,
    device=st.just("a"),
    epoch=sequences,
    readings=st.lists(readings, max_size=6),
    columns=columns,
    frames=st.lists(frames, max_size=3),
    calibration=st.sampled_from(sorted(EEPROMS)).map(lambda name: EEPROMS[name]),
)


def received(batch: DeviceBatch) -> Any:
    """Parse a request as a shard does."""
    return Request.FromString(IngestRequest(devices=[batch]).SerializeToString()).devices[0]


def shard() -> SensorShard:
    shard = SensorShard()
    shard.apply(Assignment(fleet="f", sensor=SETTINGS, epoch=1, devices=[Device(id="a", zone="hall")]))
    return shard


@FUZZ
@given(st.lists(batches, max_size=4))
@example([DeviceBatch(epoch=1, columns=ReadingColumns(first_sequence=2**64 - 1, time_ns=[0, 0]))])
@example([DeviceBatch(epoch=1, readings=[Reading(sequence=2**63, smoke_adc=math.nan)])])
@example([DeviceBatch(epoch=2**64 - 1, frames=[ThermalFrame(sequence=2**64 - 1, words=bytes(1668))])])
def test_each_item_of_any_batch_has_exactly_one_outcome(lies: list[DeviceBatch]) -> None:
    async def run() -> None:
        taken = shard()
        device = taken.fleet.owned("a")
        assert device is not None
        offered = 0
        for batch in lies:
            offered += len(batch.readings) + len(batch.columns.time_ns) + len(batch.frames) + bool(batch.calibration)
            before = (device.arrivals.epoch, device.arrivals.sequence)
            taken.analyse_batches(device, [received(batch)], 1)
            assert (device.arrivals.epoch, device.arrivals.sequence) >= before  # what was acknowledged stays so
        ledger = device.arrivals.ledger
        assert ledger.waiting == 0
        assert ledger.offered == offered

    asyncio.run(run())


@FUZZ
@given(st.lists(batches, max_size=4))
@example(
    [DeviceBatch(epoch=1, columns=ReadingColumns(first_sequence=first, time_ns=[0] * 3)) for first in (1, 4, 2, 9)]
)
def test_batches_analysed_together_or_one_by_one_have_the_same_outcome(several: list[DeviceBatch]) -> None:
    async def run() -> None:
        outcomes = []
        for sizes in ([1] * len(several), [len(several)]):
            taken = shard()
            device = taken.fleet.owned("a")
            assert device is not None
            left = [received(batch) for batch in several]
            for size in sizes:
                taken.analyse_batches(device, left[:size], 1)
                left = left[size:]
            ledger = device.arrivals.ledger.message()
            ledger.since_ns = 0
            outcomes.append(
                (
                    ledger,
                    device.arrivals.epoch,
                    device.arrivals.sequence,
                    device.levels._in_force,
                    taken.batcher.analysed,
                )
            )
        assert outcomes[0] == outcomes[1]

    asyncio.run(run())


@FUZZ
@given(st.binary(max_size=300))
@example(b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")  # a reading of 2^56 bytes
def test_any_bytes_are_parsed_as_a_batch_or_raise_a_decode_error(text: bytes) -> None:
    from google.protobuf.message import DecodeError

    taken = shard()
    device = taken.fleet.owned("a")
    assert device is not None
    try:
        (batch,) = Request.FromString(b"\x0a" + bytes([len(text) % 128 | 128, len(text) // 128]) + text).devices
    except DecodeError:
        return
    taken.analyse_batches(device, [batch], 1)
    assert device.arrivals.ledger.waiting == 0


def test_the_largest_possible_epoch_does_not_break_the_shard() -> None:
    taken = shard()
    device = taken.fleet.owned("a")
    assert device is not None
    for epoch, sequence in ((2**64 - 1, 1), (5, 2)):
        batch = DeviceBatch(device="a", epoch=epoch, readings=[Reading(sequence=sequence, smoke_adc=1)])
        taken.analyse_batches(device, [received(batch)], 1)
    assert dict(device.arrivals.ledger.rejected) == {"older epoch": 1}
    assert device.arrivals.ledger.analysed == 1
    assert device.arrivals.ledger.waiting == pytest.approx(0)
