"""The client's spool: what is put is there once, until it is forgotten, whatever comes between."""

import random
from pathlib import Path

import pytest

from embereye.client.outbox import Outbox, Spooled, SpoolFullError
from embereye.v1.ingest_pb2 import DeviceBatch

DEVICES = 16


def test_each_of_many_batches_is_kept_once_and_in_order_over_restarts(tmp_path: Path) -> None:
    path, dice, number = tmp_path / "outbox", random.Random(8), 50_000
    outbox = Outbox(path, 10**9)
    counted, sent = [0] * DEVICES, [0] * DEVICES
    waiting: dict[str, list[Spooled]] = {f"s-{device}": [] for device in range(DEVICES)}

    def send(some: float) -> None:
        gone = list[Spooled]()
        for device, (name, spooled) in enumerate(waiting.items()):
            part = spooled[: int(len(spooled) * some)]
            for one in part:
                batch = outbox.body(one.number)
                sent[device] += 1
                assert (batch.device, batch.epoch, one.last) == (name, 1, sent[device])
            del spooled[: len(part)]
            gone += part
        outbox.forget(gone)

    while sum(counted) < number:
        batches = list[tuple[DeviceBatch, int, int]]()
        for _ in range(dice.randrange(1, 300)):
            device = dice.randrange(DEVICES)
            counted[device] += 1
            batches.append((DeviceBatch(device=f"s-{device}", epoch=1), counted[device], 1))
        for (batch, _, _), spooled in zip(batches, outbox.put(batches), strict=True):
            waiting[batch.device].append(spooled)
        send(dice.random())
        if dice.random() < 0.05:
            outbox.close()
            outbox = Outbox(path, 10**9)
            assert outbox.load() == {name: spooled for name, spooled in waiting.items() if spooled}
            assert outbox.items == sum(map(len, waiting.values()))
    send(1.0)
    assert (sent, outbox.items) == (counted, 0)
    for device in range(DEVICES):
        assert outbox.counting(f"s-{device}").sequence == counted[device]
    outbox.close()


def test_what_has_no_room_is_refused_and_what_is_there_stays() -> None:
    outbox = Outbox(None, 100)
    outbox.put([(DeviceBatch(device="s-1", epoch=1), 100, 60)])
    outbox.check_room(39)
    with pytest.raises(SpoolFullError, match="100 readings are not acknowledged yet"):
        outbox.check_room(40)
    assert outbox.items == 60
