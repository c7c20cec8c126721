"""Raw readings and frames in Parquet files."""

import asyncio
import contextlib
import math
import re
import resource
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.eventually import eventually
from harness.need import PARQUET
from harness.settings import sensor_settings

from embereye.process.lifecycle import UserError
from embereye.process.tasks import Tasks
from embereye.sensor.archive import Archive, Telemetry
from embereye.sensor.shard import SensorShard
from embereye.shard.service import ShardContext, ShardOptions
from embereye.sim.sensors import Chip
from embereye.units import SECOND
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, ReadingColumns
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device
from embereye.wire.batches import Request
from embereye.wire.device.encode import encode
from embereye.wire.device.messages import Eeprom, FrameWords

SETTINGS = sensor_settings()

PARQUET.require()

import duckdb  # noqa: E402

DOCS = Path(__file__).parents[3] / "docs/how-to/telemetry.md"
REST = np.array([[283.0, math.nan, 2.0, 0.0]] * 6)


@pytest.fixture(autouse=True)
def _a_disk_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a fixed share: the disk of the test machine may be nearly full."""
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100 << 30, 50 << 30, 50 << 30))


@contextlib.asynccontextmanager
async def writing(folder: Path, **options: Any) -> AsyncIterator[Archive]:
    archive = Archive(folder, "s-0", **{"rotate_seconds": 60, "rotate_bytes": 1} | options)
    task = asyncio.ensure_future(archive.run())
    await asyncio.sleep(0)
    yield archive
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def written(archive: Archive, items: int) -> None:
    await eventually(lambda: archive.written >= items, 20)


async def dropped(archive: Archive, items: int) -> None:
    await eventually(lambda: archive.dropped >= items, 20)


def ask(folder: Path, query: str) -> list[Any]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"SET file_search_path = '{folder}'")
        rows = database.execute(query).to_arrow_table().to_pylist()
        return [tuple(row.values()) for row in rows]


def test_without_arrow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arro3.core", None)
    with pytest.raises(UserError, match=r"embereye\[parquet\]"):
        Archive(tmp_path, "s-0")


async def test_readings_and_frames_are_asked_with_sql_while_more_are_written(tmp_path: Path) -> None:
    async with writing(tmp_path) as archive:
        for number in range(3):
            archive.add("a", REST + number, number * SECOND)
            archive.add_frame("a", bytes(1668), np.full((24, 32), 20.0 + number, np.float32), number * SECOND)
            archive.add_frame("b", b"\x12\x34" * 834, None, number * SECOND)
            (tmp_path / "readings-s-1-5.part").write_bytes(b"PAR1 half of another shard's file")
            await written(archive, 8 * (number + 1))
            rows = ask(
                tmp_path, "SELECT device, count(*), max(smoke_adc), max(flame_adc) FROM 'readings-*.parquet' GROUP BY 1"
            )
            assert rows == [("a", 6 * (number + 1), 283 + number, None)]
    frames = ask(
        tmp_path,
        "SELECT device, len(celsius), list_max(celsius), octet_length(words) FROM 'frames-*.parquet' ORDER BY ALL",
    )
    assert frames == [("a", 768, 20, None), ("a", 768, 21, None), ("a", 768, 22, None), *[("b", None, None, 1668)] * 3]
    assert archive.dropped == 0


async def test_what_the_documentation_asks_is_answered(tmp_path: Path) -> None:
    queries = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(queries) == 3
    now = time.time_ns()
    async with writing(tmp_path) as archive:
        archive.add_frame("a", bytes(1668), np.full((24, 32), 61.5, np.float32), now)
        archive.add("a", REST, now + 1)
        await written(archive, 7)
    noisy, hottest, around = (ask(tmp_path, query) for query in queries)
    assert noisy == [("a", 6, 0)]
    assert [(device, value) for device, _, value in hottest] == [("a", 61.5)]
    assert [(device, smoke, value) for device, _, smoke, value in around] == [("a", 283, 61.5)] * 6


async def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    async with writing(tmp_path, retention_bytes=8000) as archive:
        for number in range(12):
            archive.add("a", REST, number * SECOND)
            await written(archive, 6 * (number + 1))
    sizes = [file.stat().st_size for file in tmp_path.glob("*.parquet")]
    assert sum(sizes) < 12_000
    [(oldest, newest)] = ask(tmp_path, "SELECT epoch(min(time)), epoch(max(time)) FROM 'readings-*.parquet'")
    assert newest == 11
    assert oldest > 0


async def test_on_a_full_disk_old_files_are_removed_and_then_new_ones_dropped(tmp_path: Path) -> None:
    free = 0.5
    async with writing(tmp_path, share_free=lambda _: free) as archive:
        archive.add("a", REST, 1)
        await written(archive, 6)
        free = 0.1
        archive.add("a", REST, 2)
        await dropped(archive, 6)
        assert "15% of the disk" in archive.failing.why
        assert not list(tmp_path.iterdir())
        free = 0.5
        archive.add("a", REST, 3)
        await written(archive, 12)
        assert not archive.failing


async def test_a_failed_write_leaves_no_partial_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with writing(tmp_path) as archive:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # files of at most 100 bytes, as on a full disk
            archive.add("a", REST, 1)
            await dropped(archive, 6)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert "File too large" in archive.failing.why
        assert not list(tmp_path.iterdir())
        archive.add("a", REST, 2)
        await written(archive, 6)


async def test_data_that_a_slow_disk_cannot_store_is_dropped_and_counted(tmp_path: Path) -> None:
    async with writing(tmp_path, rotate_bytes=10**9, pending_bytes=1000) as archive:
        for _ in range(10):
            archive.add("a", REST, 1)
        assert archive.dropped == 42
    assert archive.written == 18


async def test_only_the_successor_removes_partial_files_of_a_killed_shard(tmp_path: Path) -> None:
    (tmp_path / "readings-s-0-1.part").write_bytes(b"PAR1")
    (tmp_path / "readings-s-1-1.part").write_bytes(b"PAR1")
    async with writing(tmp_path):
        assert [file.name for file in tmp_path.iterdir()] == ["readings-s-1-1.part"]


async def test_a_shard_ignores_foreign_files_in_its_folder(tmp_path: Path) -> None:
    others = ["readings-s-0-copy.parquet", "readings-s-0-0-7.parquet", "frames-s-0-0-8.part"]
    for name in others:
        (tmp_path / name).write_bytes(b"PAR1")
    async with writing(tmp_path, retention_bytes=1) as archive:
        for number in range(2):
            archive.add("a", REST, number * SECOND)
            await written(archive, 6 * (number + 1))
        assert {file.name for file in tmp_path.iterdir()} > set(others)


async def test_a_shard_archives_text_lines_and_grpc_batches(tmp_path: Path) -> None:
    chip = Chip(1)
    async with Tasks() as tasks:
        shard = SensorShard(Telemetry(tmp_path))
        options = ShardOptions("s-0", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
        await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
        shard.apply(
            Assignment(
                fleet="f",
                sensor=SETTINGS,
                epoch=1,
                devices=[Device(id=name, zone="hall") for name in ("a", "b")],
            )
        )
        _, writer = await asyncio.open_connection("127.0.0.1", shard.ports[0])
        writer.write(b"#serialno:a!" + encode(Eeprom("a", chip.eeprom)) + encode(FrameWords("a", chip.frame(0.0, 0))))
        for number in range(20):
            writer.write(b"#Sensora:ADC1=%d,ADC2=1305,ADC3=2,DIO=0!\r\n" % (280 + number))
            await asyncio.sleep(0.002)
        batch = DeviceBatch(
            device="b", epoch=1, columns=ReadingColumns(first_sequence=1, time_ns=[0, 0], gas_adc=[400, 401])
        )
        device = shard.fleet.owned("b")
        assert device is not None
        request = Request.FromString(IngestRequest(devices=[batch]).SerializeToString())
        shard.analyse_batches(device, request.devices, 1)
        await eventually(lambda: shard.devices(0)[0].ledger.analysed >= 22, 20)
        assert not shard.degraded()
        names = {metric.name for metric in shard.metrics()}
        writer.close()
        await shard.stop()
    rows = ask(
        tmp_path,
        "SELECT device, count(*), max(smoke_adc), max(gas_adc) FROM 'readings-*.parquet' GROUP BY 1 ORDER BY 1",
    )
    assert rows == [("a", 20, 299, 2), ("b", 2, None, 401)]
    [(device, hottest)] = ask(tmp_path, "SELECT device, list_max(celsius) FROM 'frames-*.parquet'")
    assert (device, hottest) == ("a", pytest.approx(22, abs=3))
    assert names >= {"embereye_sensor_archive_items", "embereye_sensor_archive_failing"}


async def test_a_shard_without_a_working_archive_still_watches(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with Tasks() as tasks:
        shard = SensorShard(Telemetry(tmp_path / "file"))
        options = ShardOptions("s-0", Path("none"), "", None, "127.0.0.1", 0, 0, 0, 0, 0)
        await shard.start(ShardContext(options, tasks, lambda _: None, lambda: None))
        assert shard.ports
        assert shard.batcher.archive is None
        assert shard.degraded().startswith("telemetry.archive: raw readings are not stored: ")
        await shard.stop()


async def test_files_have_the_columns_that_earlier_releases_wrote(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    async with writing(tmp_path) as archive:
        archive.add("a", REST, 1)
        archive.add_frame("a", bytes(1668), np.full((24, 32), 20.0, np.float32), 2)
        await written(archive, 7)
    readings, frames = (
        pa.parquet.read_schema(next(tmp_path.glob(f"{kind}-*.parquet"))) for kind in ("readings", "frames")
    )
    keys = [("time", pa.timestamp("ns", tz="UTC")), ("device", pa.dictionary(pa.int32(), pa.string()))]
    numbers = ("smoke_adc", "flame_adc", "gas_adc", "flame_detected")
    assert readings.remove_metadata() == pa.schema(keys + [(name, pa.float32()) for name in numbers])
    celsius = pa.list_(pa.field("element", pa.float32()))
    assert frames.remove_metadata() == pa.schema([*keys, ("celsius", celsius), ("words", pa.binary())])
