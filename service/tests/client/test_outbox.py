"""The outbox of the client: each batch is stored once until it is forgotten, through restarts and damage."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from embereye.client import outbox as outbox_module
from embereye.client.outbox import Outbox, Spooled, SpoolFullError
from embereye.v1.ingest_pb2 import DeviceBatch

DEVICES = 16


def test_each_of_many_batches_is_stored_once_and_in_order_over_restarts(tmp_path: Path) -> None:
    path, dice, number = tmp_path / "outbox", random.Random(8), 50_000
    outbox = Outbox(path, 10**9)
    counted, sent = [0] * DEVICES, [0] * DEVICES
    waiting: dict[str, list[Spooled]] = {f"s-{device}": [] for device in range(DEVICES)}

    def send(some: float) -> None:
        gone = list[Spooled]()
        for device, (name, spooled) in enumerate(waiting.items()):
            part = spooled[: int(len(spooled) * some)]
            for stored in part:
                batch = outbox.body(stored.number)
                sent[device] += 1
                assert (batch.device, batch.epoch, stored.last) == (name, 1, sent[device])
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


def test_batches_without_room_are_refused_and_stored_ones_stay() -> None:
    outbox = Outbox(None, 100)
    outbox.put([(DeviceBatch(device="s-1", epoch=1), 100, 60)])
    outbox.check_room(39)
    with pytest.raises(SpoolFullError, match="100 readings are not acknowledged yet"):
        outbox.check_room(40)
    assert outbox.items == 60


def garble(path: Path, begin: float, end: float) -> None:
    content = bytearray(path.read_bytes())
    first, last = int(begin * len(content)), int(end * len(content))
    content[first:last] = b"\xa5" * (last - first)
    path.write_bytes(content)


def killed(path: Path) -> Path:
    """Copy an open file as a kill would leave it."""
    left = path.with_name("left")
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    return left


DAMAGES: dict[str, Callable[[Path], object]] = {
    "replaced": lambda path: garble(path, 0, 1),
    "header": lambda path: garble(path, 0, 0.01),
    "middle": lambda path: garble(path, 0.4, 0.6),
    "end": lambda path: garble(path, 0.9, 1),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
}


def filled(path: Path) -> tuple[Outbox, list[Spooled]]:
    outbox = Outbox(path, 10**9)
    calibration = bytes(1_000)
    batches = [(DeviceBatch(device="s", epoch=7, calibration=calibration), number + 1, 1) for number in range(500)]
    return outbox, [spooled for batch in batches for spooled in outbox.put([batch])]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_moved_aside_and_its_readable_content_is_retained(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "outbox"
    filled(path)[0].close()
    damage(path)
    outbox = Outbox(path, 10**9)
    assert "was damaged" in caplog.text
    assert (tmp_path / "outbox.damaged").exists()
    left = outbox.items
    assert outbox.counting("s").epoch > 7, "the stored sequence is not reliable"
    (added,) = outbox.put([(DeviceBatch(device="s", epoch=8), 1, 1)])
    for spooled in outbox.load()["s"]:
        assert outbox.body(spooled.number)
    outbox.forget([added])
    outbox.close()
    caplog.clear()
    assert Outbox(path, 10**9).items == left < 500
    assert not caplog.text


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_is_damaged_later_is_moved_aside_too(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    path = tmp_path / "outbox"
    outbox, spooled = filled(path)
    outbox._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    outbox._db.execute("PRAGMA shrink_memory")
    damage(path)
    readable = {batch.number for batch in spooled if outbox.body(batch.number)}
    (last,) = outbox.put([(DeviceBatch(device="s", epoch=7), 501, 1)])
    assert last.number == 501, "numbers are unique"
    readable = {batch.number for batch in spooled if outbox.body(batch.number)}
    assert len(readable) < 500
    assert outbox.items == len(readable) + 1
    outbox.forget(spooled)
    assert outbox.items == 1
    assert Outbox(killed(path), 10**9).load() == {"s": [last]}


def test_two_programs_do_not_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "IN_USE_SECONDS", 0.0)
    path = tmp_path / "outbox"
    outbox, spooled = filled(path)
    with pytest.raises(sqlite3.OperationalError, match="outbox is used by another program: name a separate spool"):
        Outbox(path, 10**9)
    outbox.close()
    assert Outbox(path, 10**9).load() == {"s": spooled}


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_that_is_removed_meanwhile_loses_nothing(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "outbox"
    outbox, spooled = filled(path)
    path.with_name(path.name + suffix).unlink()
    last = outbox.put([(DeviceBatch(device="s", epoch=7), 501, 1)])
    assert Outbox(killed(path), 10**9).load() == {"s": spooled + last}
