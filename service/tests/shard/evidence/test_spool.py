import asyncio
import errno
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embereye.levels import Level
from embereye.shard.evidence.spool import RETURN_SECONDS, Spool
from embereye.v1.evidence_pb2 import EvidenceItem


def report(name: str, episode: str = "e", level: Level = Level.ALARM) -> EvidenceItem:
    return EvidenceItem(id=name, episode=episode, level=level.wire)


def ids(spool: Spool, after: int = 0) -> list[str]:
    return [evidence.id for _, evidence in spool.after(after)]


def test_unacknowledged_reports_survive_a_restart(tmp_path: Path) -> None:
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
from embereye.shard.evidence.spool import RETURN_SECONDS, Spool
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
spool = Spool(Path(sys.argv[1]))
spool.discard("e-0")
print(len(spool), spool.subjects())
"""


def test_reports_with_pictures_are_not_all_loaded_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "s.spool"
    spool = Spool(path)
    for number in range(96):
        picture = EvidenceItem(id=f"{number}", device="c", episode=f"e-{number}", snapshot=bytes(1 << 20))
        spool.put(picture)
    spool.close()
    done = subprocess.run([sys.executable, "-c", FRUGAL, str(path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("95 c\n", "")


def test_a_file_that_cannot_be_opened_blocks_no_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s.spool"
    path.mkdir()
    spool = Spool(path)
    spool.put(report("a"))
    assert ids(spool) == ["a"]
    spool.acknowledge(["a"])
    assert not len(spool)
    assert f"{path} cannot be written (" in caplog.text


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
def test_a_damaged_file_is_moved_aside_and_its_readable_content_is_retained(
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
def test_a_file_damaged_under_a_running_shard_loses_no_later_report(
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


def test_the_loss_with_a_damaged_file_is_named(tmp_path: Path) -> None:
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


def test_a_report_that_is_put_twice_still_waits() -> None:
    spool = Spool(None)
    for _ in range(2):
        spool.put(report("a"))
    assert ids(spool) == ["a"]
    assert len(spool) == 1


def test_a_full_spool_drops_the_weakest_report_and_counts_it() -> None:
    spool = Spool(None, capacity=2)
    spool.put(report("alarm", "one", Level.ALARM))
    spool.put(report("hint", "two", Level.PRE_ALARM))
    spool.put(report("fire", "three", Level.CRITICAL))
    assert ids(spool) == ["alarm", "fire"]
    assert spool.dropped == 1
    assert len(spool) == 2


def test_reading_continues_after_a_number() -> None:
    spool = Spool(None)
    first = spool.put(report("a", "one"))
    spool.put(report("b", "two"))
    assert ids(spool, first) == ["b"]


def test_acknowledging_unknown_reports_changes_nothing() -> None:
    spool = Spool(None)
    spool.put(report("a"))
    spool.acknowledge(["x", "y"])
    assert ids(spool) == ["a"]
    assert len(spool) == 1


class Recorded:
    """A connection that records its statements."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.statements = set[str]()

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self.statements.add(statement)
        return self.connection.execute(statement, *arguments)

    def executemany(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self.statements.add(statement)
        return self.connection.executemany(statement, *arguments)


def test_the_statements_do_not_depend_on_the_number_of_acknowledged_reports() -> None:
    spool = Spool(None)
    recorded: Any = Recorded(spool._db)
    spool._db = recorded
    for count in (*range(1, 60), 499, 501):
        names = [f"{count}-{number}" for number in range(count)]
        for name in names:
            spool.put(report(name, episode=name))
        spool.acknowledge([*names, "unknown"])
        assert (len(spool), ids(spool)) == (0, [])
    # Prepared statements need memory in proportion to their parameters.
    assert len([statement for statement in recorded.statements if statement.startswith("DELETE")]) == 2


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the time pass after which a spool tries its disk again."""
    monotonic, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + passed[0])

    def go_on() -> None:
        passed[0] += RETURN_SECONDS

    return go_on


def test_a_full_disk_blocks_no_report_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, later: Callable[[], None]
) -> None:
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
    assert f"{path} cannot be written (database or disk is full)" in spool.degraded
    assert "Make room" in spool.degraded
    assert ids(Spool(path)) == ["before"]
    assert spool._disk is not None
    spool._disk.execute("PRAGMA max_page_count = 100000")
    later()
    spool.acknowledge(["before", "large", "after"])
    assert f"{path} can be written again" in caplog.text
    assert not spool.degraded
    assert spool.put(report("later", "three")) > third
    spool.close()
    assert ids(Spool(path)) == ["later"]


class FullDisk:
    """A process that may only write files of up to 256 KB."""

    def __init__(self) -> None:
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill(self, size: int = 1 << 18) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._limits[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)

    def close(self) -> None:
        self.free()
        signal.signal(signal.SIGXFSZ, self._handler)


@pytest.fixture
def disk() -> Iterator[FullDisk]:
    full = FullDisk()
    yield full
    full.close()


def put_until_in_memory(spool: Spool) -> None:
    """Add reports until the disk is full."""
    for number in range(1000):
        spool.put(EvidenceItem(id=f"r-{number}", episode=f"e-{number}", note="x" * 3000))
        if spool.degraded:
            return
    raise AssertionError("the disk took everything")


def test_a_disk_that_stays_full_is_logged_once_and_stays_in_the_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, later: Callable[[], None], disk: FullDisk
) -> None:
    spool = Spool(tmp_path / "s.spool")
    disk.fill()
    put_until_in_memory(spool)
    for number in range(10):
        spool.acknowledge([report.id for _, report in spool.after(0, 1000)])
        assert not len(spool)
        later()
        spool.put(report(f"a-{number}"))
        assert "cannot be written" in spool.degraded
    assert len(caplog.records) == 1
    disk.free()  # before it is reported: the output may go to a large file


def test_reports_in_memory_move_to_the_disk_once_it_has_room(
    tmp_path: Path, later: Callable[[], None], disk: FullDisk
) -> None:
    spool = Spool(tmp_path / "s.spool")
    disk.fill()
    put_until_in_memory(spool)
    disk.free()
    later()
    spool.put(report("last"))
    assert not spool.degraded
    # As after a kill: nothing is closed.
    assert ids(Spool(tmp_path / "s.spool")) == ids(spool)
    assert ids(spool)[-1] == "last"


def test_a_spool_that_started_on_a_full_disk_uses_it_once_it_has_room(
    tmp_path: Path, later: Callable[[], None], disk: FullDisk
) -> None:
    path = tmp_path / "s.spool"
    disk.fill(1)
    spool = Spool(path)
    spool.put(report("a"))
    assert "cannot be written" in spool.degraded
    disk.free()
    later()
    spool.put(report("b", "two"))
    spool.close()
    again = Spool(path)
    assert ids(again) == ["a", "b"]
    assert not again.degraded


def test_reports_on_an_unreadable_disk_are_sent_once_it_can_be_read(tmp_path: Path, later: Callable[[], None]) -> None:
    path = tmp_path / "s.spool"
    before = Spool(path)
    before.put(report("before", "zero"))
    before.close()
    path.rename(tmp_path / "away")
    path.mkdir()  # it cannot be opened
    spool = Spool(path)
    sent = spool.put(report("now"))
    path.rmdir()
    (tmp_path / "away").rename(path)
    later()
    spool.acknowledge(["now"])
    assert [item.id for _, item in spool.after(sent)] == ["before"]


@pytest.mark.parametrize("damage", [damage for name, damage in DAMAGES.items() if name != "end"])
def test_a_file_that_is_damaged_when_it_can_be_opened_is_moved_aside(
    tmp_path: Path, later: Callable[[], None], damage: Callable[[Path], None]
) -> None:
    path, away = tmp_path / "s.spool", tmp_path / "away"
    filled(path).close()
    damage(path)
    path.rename(away)
    path.mkdir()  # it cannot be opened
    spool = Spool(path)
    sent = spool.put(report("now", "late"))
    path.rmdir()
    away.rename(path)
    later()
    spool.put(report("next", "later"))
    assert "cannot be written" not in spool.degraded
    assert "was damaged" in spool.degraded
    assert "its unreadable reports are lost" in spool.degraded
    assert (tmp_path / "s.spool.damaged").exists()
    assert {item.id for _, item in spool.after(sent - 1)} > {"now", "next"} or len(spool) == 2
    # As after a kill: nothing is closed.
    assert len(Spool(path)) == len(spool)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_full_disk_that_damages_the_file_loses_nothing(
    tmp_path: Path, later: Callable[[], None], disk: FullDisk, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "s.spool"
    spool = Spool(path)
    disk.fill()
    put_until_in_memory(spool)
    disk.free()
    for file in (path, path.with_name("s.spool-wal")):
        damage(file)
    later()
    spool.put(report("last"))
    assert "cannot be written" not in spool.degraded
    assert not spool.degraded or spool.degraded.endswith("nothing is lost")
    assert ids(Spool(path)) == ids(spool)
    assert ids(spool)[-1] == "last"


def test_garbled_rows_on_a_disk_that_can_be_opened_again_are_reported(
    tmp_path: Path, later: Callable[[], None]
) -> None:
    path, away = tmp_path / "s.spool", tmp_path / "away"
    spool = filled(path)
    spool._db.execute("UPDATE spool SET report = x'ff' WHERE id IN ('r-7', 'r-8')")
    spool.close()
    path.rename(away)
    path.mkdir()
    spool = Spool(path)
    path.rmdir()
    away.rename(path)
    later()
    spool.put(report("now", "late"))
    assert spool.degraded.endswith("2 reports are lost")
    assert len(spool) == 199


@pytest.mark.parametrize("number", [0, 100, 199])
def test_a_garbled_row_loses_only_its_own_report(tmp_path: Path, number: int) -> None:
    path = tmp_path / "s.spool"
    spool = filled(path)
    spool._db.execute("UPDATE spool SET report = x'ff' WHERE id = ?", (f"r-{number}",))
    spool.close()
    spool = Spool(path)
    assert spool.degraded.endswith(": 1 report is lost")
    assert len(spool) == 199


def test_a_damaged_file_that_cannot_be_moved_aside_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, later: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.spool"
    filled(path).close()
    truncate(path, 0.5)
    replace = Path.replace

    def read_only(file: Path, target: Path) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "replace", read_only)
    spool = Spool(path)
    for number in range(10):
        later()
        spool.put(report(f"a-{number}", f"b-{number}"))
    logged = caplog.text
    assert logged.count("was damaged") == logged.count("cannot be written") == 1
    monkeypatch.setattr(Path, "replace", replace)
    later()
    spool.put(report("last", "later"))
    assert "cannot be written" not in spool.degraded
    assert ids(Spool(path))[-11:] == [f"a-{number}" for number in range(10)] + ["last"]


ALTERATIONS: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "replaced": lambda path: path.with_name("other").replace(path),
    "cut off": lambda path: truncate(path, 0.5),
}


@pytest.mark.parametrize("suffixes", [("",), ("-wal",), ("", "-wal")], ids=["database", "log", "both"])
@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_files_altered_under_a_running_shard_lose_nothing(
    tmp_path: Path, alter: Callable[[Path], object], suffixes: tuple[str, ...]
) -> None:
    path = tmp_path / "s.spool"
    spool = filled(path)
    assert spool.is_durable()
    for suffix in suffixes:
        (tmp_path / "other").write_bytes(b"\xa5" * 5000)
        alter(path.with_name(path.name + suffix))
    assert not spool.is_durable()
    spool.put(report("fire", "later"))
    assert spool.degraded.endswith("nothing is lost")
    assert spool.is_durable()
    # As after a kill: nothing is closed.
    again = Spool(path)
    assert again.degraded == ""
    assert len(again) == 201
    assert "fire" in ids(again)


def test_an_empty_file_that_is_removed_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.spool"
    spool = Spool(path)
    path.unlink()
    spool.put(report("fire"))
    assert spool.degraded.endswith("(s.spool was removed): nothing is lost")


def test_a_folder_that_is_removed_under_a_running_shard_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "shard" / "s.spool"
    spool = filled(path)
    shutil.rmtree(path.parent)
    spool.save()
    assert spool.is_durable()
    assert len(Spool(path)) == 200


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir() if file.is_file()}


def test_asking_whether_reports_are_durable_changes_nothing(tmp_path: Path, disk: FullDisk) -> None:
    assert not Spool(None).is_durable()
    spool = Spool(tmp_path / "s.spool")
    disk.fill()
    put_until_in_memory(spool)
    disk.free()
    before = contents(tmp_path)
    assert not spool.is_durable()
    assert contents(tmp_path) == before
    spool.save()
    before = contents(tmp_path)
    assert spool.is_durable()
    assert contents(tmp_path) == before
    (tmp_path / "s.spool").unlink()
    before = contents(tmp_path)
    assert not spool.is_durable()
    assert contents(tmp_path) == before


def test_reports_in_memory_are_written_when_the_shard_ends(tmp_path: Path, disk: FullDisk) -> None:
    spool = Spool(tmp_path / "s.spool")
    disk.fill()
    put_until_in_memory(spool)
    spool.save()
    assert not spool.is_durable()
    waiting = ids(spool)
    disk.free()
    spool.save()
    assert spool.is_durable()
    spool.close()
    assert ids(Spool(tmp_path / "s.spool")) == waiting


def test_the_waiting_time_starts_with_the_latest_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("embereye.shard.evidence.spool.time.monotonic", lambda: now)
    spool = Spool(None)
    now = 200.0
    assert spool.waiting_seconds() == 0.0
    spool.put(EvidenceItem(id="1", episode="a"))
    spool.put(EvidenceItem(id="2", episode="b"))
    now = 230.0
    assert spool.waiting_seconds() == 30.0
    spool.acknowledge([])  # a response without acknowledgements
    assert spool.waiting_seconds() == 30.0
    spool.acknowledge(["1"])
    now = 235.0
    assert spool.waiting_seconds() == 5.0
    spool.acknowledge(["2"])
    assert spool.waiting_seconds() == 0.0


async def test_each_of_many_reports_is_delivered_once_and_in_order(
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


def test_beyond_its_capacity_the_spool_retains_the_strongest_reports() -> None:
    spool, levels = Spool(None, capacity=500), (Level.PRE_ALARM, Level.ALARM, Level.CRITICAL)
    for number in range(3_000):
        spool.put(report(f"r-{number}", f"e-{number}", levels[number % 3]))
    assert (len(spool), spool.dropped) == (500, 2_500)
    strongest = [f"r-{number}" for number in range(3_000) if number % 3 == 2]
    assert [item.id for _, item in spool.after(0, 1_000)] == strongest[-500:]
