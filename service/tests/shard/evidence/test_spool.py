import asyncio
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embereye.levels import Level
from embereye.shard.evidence.spool import Spool
from embereye.v1.evidence_pb2 import EvidenceItem


def report(name: str, episode: str = "e", level: Level = Level.ALARM) -> EvidenceItem:
    return EvidenceItem(id=name, episode=episode, level=level.wire)


def ids(spool: Spool, after: int = 0) -> list[str]:
    return [evidence.id for _, evidence in spool.after(after)]


def test_what_is_not_acknowledged_is_still_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "s.spool"
    spool = Spool(path)
    spool.put(report("a", "one"))
    spool.put(report("b", "two"))
    spool.acknowledge(["a"])
    spool.close()
    again = Spool(path)
    assert ids(again) == ["b"]
    assert len(again) == 1


FRUGAL = """
import resource, sys
from pathlib import Path
from embereye.shard.evidence.spool import Spool
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
spool = Spool(Path(sys.argv[1]))
spool.discard("e-0")
print(len(spool), spool.subjects())
"""


def test_reports_with_pictures_do_not_come_into_memory_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.spool"
    spool = Spool(path)
    for number in range(96):
        picture = EvidenceItem(id=f"{number}", device="c", episode=f"e-{number}", snapshot=bytes(1 << 20))
        spool.put(picture)
    spool.close()
    done = subprocess.run([sys.executable, "-c", FRUGAL, str(path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("95 c\n", "")


def test_a_file_that_cannot_be_opened_keeps_no_alarm_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s.spool"
    path.mkdir()
    spool = Spool(path)
    spool.put(report("a"))
    assert ids(spool) == ["a"]
    spool.acknowledge(["a"])
    assert not len(spool)
    assert f"{path} cannot be used: " in caplog.text


def garble(path: Path, begin: float, end: float) -> None:
    """Overwrite this part of a file."""
    content = bytearray(path.read_bytes())
    first, last = int(begin * len(content)), int(end * len(content))
    content[first:last] = b"\xa5" * (last - first)
    path.write_bytes(content)


def truncate(path: Path, size: float) -> None:
    os.truncate(path, int(size * path.stat().st_size))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "replaced": lambda path: garble(path, 0, 1),
    "emptied": lambda path: truncate(path, 0),
    "cut off": lambda path: truncate(path, 0.5),
    "header": lambda path: garble(path, 0, 0.01),
    "middle": lambda path: garble(path, 0.4, 0.6),
    "end": lambda path: garble(path, 0.9, 1),
}


def filled(path: Path) -> Spool:
    spool = Spool(path)
    for number in range(200):
        spool.put(EvidenceItem(id=f"r-{number}", episode=f"e-{number}", device=f"s-{number}", note="x" * 300))
    return spool


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_put_aside_and_what_can_be_read_goes_on_with_what_comes(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "s.spool"
    filled(path).close()
    damage(path)
    spool = Spool(path)
    assert "was damaged" in spool.degraded
    assert "lost" in spool.degraded
    left = len(spool)
    spool.put(report("fire"))
    assert ids(spool)[-1:] == ["fire"] or left >= 256
    assert len(spool) == left + 1
    spool.acknowledge(["fire"])
    spool.close()
    again = Spool(path)
    assert again.degraded == ""
    assert len(again) == left
    assert (tmp_path / "s.spool.damaged").exists()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_is_damaged_under_a_running_shard_loses_no_report_that_comes_after(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "s.spool"
    spool = filled(path)
    latest = spool.put(report("before"))
    for file in (path, path.with_name("s.spool-wal")):
        damage(file)
    number = spool.put(report("fire", episode="later"))
    assert number > latest, "who reads on from a number misses nothing"
    assert "fire" in [evidence.id for _, evidence in spool.after(latest)]
    spool.acknowledge(["fire"])
    assert "fire" not in [evidence.id for _, evidence in spool.after(latest)]


def test_what_a_damaged_file_took_with_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.spool"
    spool = filled(path)
    spool._db.execute("UPDATE spool SET report = x'ff' WHERE id IN ('r-7', 'r-8')")
    assert len(spool.after(0, 300)) == 198
    assert spool.degraded.endswith("reports about s-7, s-8 are lost")


def test_a_later_report_of_the_same_episode_and_level_replaces_the_earlier_one() -> None:
    spool = Spool(None)
    spool.put(report("e-1", level=Level.PRE_ALARM))
    spool.put(report("e-2", level=Level.ALARM))
    spool.put(report("e-3", level=Level.ALARM))
    assert ids(spool) == ["e-1", "e-3"]
    assert len(spool) == 2


def test_a_full_spool_gives_up_the_weakest_and_counts_it() -> None:
    spool = Spool(None, capacity=2)
    spool.put(report("alarm", "one", Level.ALARM))
    spool.put(report("hint", "two", Level.PRE_ALARM))
    spool.put(report("fire", "three", Level.CRITICAL))
    assert ids(spool) == ["alarm", "fire"]
    assert spool.dropped == 1
    assert len(spool) == 2


def test_reading_goes_on_after_a_number() -> None:
    spool = Spool(None)
    first = spool.put(report("a", "one"))
    spool.put(report("b", "two"))
    assert ids(spool, first) == ["b"]


def test_acknowledging_what_is_unknown_changes_nothing() -> None:
    spool = Spool(None)
    spool.put(report("a"))
    spool.acknowledge(["x", "y"])
    assert ids(spool) == ["a"]
    assert len(spool) == 1


class Recorded:
    """A connection, and which statements it was given."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.statements = set[str]()

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self.statements.add(statement)
        return self.connection.execute(statement, *arguments)

    def executemany(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self.statements.add(statement)
        return self.connection.executemany(statement, *arguments)


def test_however_many_reports_are_acknowledged_at_once_the_statements_are_the_same() -> None:
    spool = Spool(None)
    recorded: Any = Recorded(spool._db)
    spool._db = recorded
    for count in (*range(1, 60), 499, 501):
        names = [f"{count}-{number}" for number in range(count)]
        for name in names:
            spool.put(report(name, episode=name))
        spool.acknowledge([*names, "unknown"])
        assert (len(spool), ids(spool)) == (0, [])
    # The database keeps each statement prepared, in proportion to its marks.
    assert len([statement for statement in recorded.statements if statement.startswith("DELETE")]) == 2


def test_a_full_disk_keeps_no_report_back_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s.spool"
    spool = Spool(path)
    first = spool.put(report("before", "zero"))
    spool._db.execute("PRAGMA max_page_count = 1")
    large = EvidenceItem(id="large", episode="one", level=Level.ALARM.wire, snapshot=bytes(50_000))
    second = spool.put(large)
    third = spool.put(report("after", "two"))
    assert first < second < third
    assert ids(spool) == ["before", "large", "after"]
    assert caplog.text.count("cannot be written") == 1
    assert ids(Spool(path)) == ["before"]
    assert spool._disk is not None
    spool._disk.execute("PRAGMA max_page_count = 100000")
    spool.acknowledge(["before", "large", "after"])
    assert "can be written to the disk again" in caplog.text
    assert spool.put(report("later", "three")) > third
    spool.close()
    assert ids(Spool(path)) == ["later"]


def test_reports_wait_from_the_latest_acknowledgement_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("embereye.shard.evidence.spool.time.monotonic", lambda: now)
    spool = Spool(None)
    now = 200.0
    assert spool.waiting_seconds() == 0.0
    spool.put(EvidenceItem(id="1", episode="a"))
    spool.put(EvidenceItem(id="2", episode="b"))
    now = 230.0
    assert spool.waiting_seconds() == 30.0
    spool.acknowledge([])  # the hub has said something else
    assert spool.waiting_seconds() == 30.0
    spool.acknowledge(["1"])
    now = 235.0
    assert spool.waiting_seconds() == 5.0
    spool.acknowledge(["2"])
    assert spool.waiting_seconds() == 0.0


async def test_each_of_many_reports_is_delivered_once_and_in_order_while_others_come_and_are_acknowledged(
    debugged: bool,
) -> None:
    producers, each = 16, (10_000 if debugged else 50_000) // 16
    spool, delivered, dice = Spool(None), list[str](), random.Random(6)

    async def produce(producer: int) -> None:
        for number in range(each):
            spool.put(report(f"{producer}/{number}", f"{producer}/{number}"))
            if not number % 16:
                await asyncio.sleep(0)
            while len(spool) > 2_000:
                await asyncio.sleep(0)

    async def deliver() -> None:
        sent, waiting = 0, list[str]()
        while len(delivered) < producers * each or waiting:
            for number, item in spool.after(sent, dice.randrange(1, 300)):
                assert number > sent
                sent = number
                waiting.append(item.id)
                delivered.append(item.id)
            acknowledged, waiting = waiting[: (part := dice.randrange(400))], waiting[part:]
            if acknowledged:
                spool.acknowledge(acknowledged)
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(deliver(), *(produce(producer) for producer in range(producers))), 150)
    for producer in range(producers):
        mine = [name for name in delivered if name.startswith(f"{producer}/")]
        assert mine == [f"{producer}/{number}" for number in range(each)]
    assert len(delivered) == producers * each
    assert (len(spool), spool.dropped, spool.degraded) == (0, 0, "")
    assert not spool.after(0)


def test_of_more_than_there_is_room_for_the_strongest_wait_and_the_rest_is_counted() -> None:
    spool, levels = Spool(None, capacity=500), (Level.PRE_ALARM, Level.ALARM, Level.CRITICAL)
    for number in range(3_000):
        spool.put(report(f"r-{number}", f"e-{number}", levels[number % 3]))
    assert (len(spool), spool.dropped) == (500, 2_500)
    strongest = [f"r-{number}" for number in range(3_000) if number % 3 == 2]
    assert [item.id for _, item in spool.after(0, 1_000)] == strongest[-500:]
