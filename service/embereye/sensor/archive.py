"""Archive raw readings and thermal frames in Parquet files, which DuckDB can read while more are written.

Data is collected in memory; a thread writes a file once there is enough data or enough time has passed. A file appears
complete under its final name. If the thread is too slow, data is dropped and counted; a shard that is killed loses the
data that is not in a file yet. The oldest files are removed if there are too many or the disk is nearly full, because
evidence is stored on it, too.

It needs arro3 (Arrow and Parquet in Rust), the extra `parquet`. That takes 33 MB of the image, where pyarrow takes 165,
and writes as fast.
"""

import asyncio
import io
import logging
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embereye.process.condition import Condition
from embereye.process.extras import needed_by
from embereye.process.files import system_errors, write_new
from embereye.process.timing.clock import stepped_ns

logger = logging.getLogger(__name__)
ROTATE_SECONDS = 60.0  # longest time until a measurement is in a file
ROTATE_BYTES = 32 * 1024**2  # bytes in memory from which a file is written early
PENDING_BYTES = 4 * ROTATE_BYTES  # bytes in memory from which data is dropped
RETENTION_BYTES = 10 * 1024**3  # bytes in files of this shard
FREE_SHARE = 0.15  # share of the disk that is left free; Kubernetes evicts pods at 0.1
ROW_BYTES = 48  # memory of a reading, with overhead
COLUMNS = ("smoke_adc", "flame_adc", "gas_adc", "flame_detected")


class Telemetry(NamedTuple):
    """The folder of raw readings and frames, and its largest size in bytes."""

    folder: Path
    size: int = RETENTION_BYTES


class _Readings(NamedTuple):
    device: str
    time_ns: int
    rows: NDArray[np.float64]  # (n, 4)


class _Frame(NamedTuple):
    device: str
    time_ns: int
    words: bytes
    celsius: NDArray[np.float32] | None


class _Pending:
    """The data that is not in a file yet."""

    def __init__(self) -> None:
        self.readings: list[_Readings] = []
        self.frames: list[_Frame] = []
        self.items = 0
        self.bytes = 0


def disk_share_free(folder: Path) -> float:
    """The free share (0..1) of the disk that `folder` is on."""
    usage = shutil.disk_usage(folder)
    return usage.free / usage.total


class Archive:
    """Collects readings and frames and writes them to files; run `run()` as a task."""

    def __init__(
        self,
        folder: Path,
        shard: str,
        *,
        rotate_seconds: float = ROTATE_SECONDS,
        rotate_bytes: int = ROTATE_BYTES,
        pending_bytes: int = PENDING_BYTES,
        retention_bytes: int = RETENTION_BYTES,
        share_free: Callable[[Path], float] = disk_share_free,
    ) -> None:
        with needed_by("telemetry.archive", "arro3", "parquet"):
            import arro3.core
            import arro3.io  # noqa: F401
        self._folder = folder
        self._shard = shard
        self._rotate_seconds = rotate_seconds
        self._rotate_bytes = rotate_bytes
        self._pending_bytes = pending_bytes
        self._retention_bytes = retention_bytes
        self._share_free = share_free
        self._pending = _Pending()
        self._full = asyncio.Event()
        self._latest = 0  # number of the newest file
        self.written = 0  # readings and frames
        self.dropped = 0  # readings and frames
        self.failing = Condition(logger, first_only=True)  # the latest file could not be written
        with system_errors(f"--telemetry {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            for half in self._files(".part"):
                half.unlink(missing_ok=True)  # of a shard that was killed
            self._latest = max(map(_number, self._files(".parquet")), default=0)

    def add(self, device: str, rows: NDArray[np.float64], now_ns: int) -> None:
        """Add readings (n, 4): smoke, flame, gas in ADC counts, digital flame; NaN: missing. Drops them if full."""
        if self._room(len(rows), len(rows) * ROW_BYTES):
            self._pending.readings.append(_Readings(device, now_ns + stepped_ns(), rows))

    def add_frame(self, device: str, words: bytes, celsius: NDArray[np.float32] | None, now_ns: int) -> None:
        """Add a thermal frame: its words, and its (24, 32) °C if it is calibrated. Without room, drop it."""
        if self._room(1, len(words) if celsius is None else celsius.nbytes):
            self._pending.frames.append(_Frame(device, now_ns + stepped_ns(), words, celsius))

    def _room(self, items: int, size: int) -> bool:
        pending = self._pending
        if pending.bytes + size > self._pending_bytes:
            self.dropped += items
            return False
        pending.items += items
        pending.bytes += size
        if pending.bytes >= self._rotate_bytes:
            self._full.set()
        return True

    async def run(self) -> None:
        """Write files until cancelled, then a last one."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._rotate_seconds):
                        await self._full.wait()
                except TimeoutError:
                    pass
                await asyncio.to_thread(self._write, self._take_pending())
        finally:
            self._write(self._take_pending())

    def _take_pending(self) -> _Pending:
        taken, self._pending = self._pending, _Pending()
        self._full.clear()
        return taken

    def _write(self, pending: _Pending) -> None:
        if not pending.items:
            return
        try:
            self._retire(pending.bytes)
            if pending.readings:
                self._write_file("readings", _readings_table(pending.readings))
            if pending.frames:
                self._write_file("frames", _frames_table(pending.frames))
            self.written += pending.items
        except OSError as error:
            self.dropped += pending.items
            self.failing.fail(str(error), "raw readings and frames cannot be stored in %s: %s", self._folder, error)
        else:
            self.failing.clear("raw readings and frames are stored in %s again", self._folder)

    def _write_file(self, kind: str, table: Any) -> None:
        from arro3.io import write_parquet

        # Files are removed in the order of these numbers, so a later file needs a higher one.
        self._latest = max(self._latest + 1, time.time_ns())
        path = self._folder / f"{kind}-{self._shard}-{self._latest}.parquet"
        half = path.with_suffix(".part")
        # Encoded in memory first: on a full disk arro3 panics, which `except Exception` does not catch.
        coded = io.BytesIO()
        write_parquet(table, coded, compression="zstd(1)")
        try:
            write_new(half, coded.getbuffer(), 0o666)
            half.replace(path)
        finally:
            half.unlink(missing_ok=True)

    def _files(self, suffix: str) -> list[Path]:
        """The files of exactly this shard; the folder may contain others."""
        pattern = re.compile(rf"(?:readings|frames)-{re.escape(self._shard)}-\d+{re.escape(suffix)}")
        return [file for file in self._folder.iterdir() if pattern.fullmatch(file.name)]

    def _retire(self, needed: int) -> None:
        """Remove the oldest files until `needed` more bytes fit; OSError if the disk remains too full."""
        files = sorted(self._files(".parquet"), key=_number)
        sizes = [file.stat().st_size for file in files]
        surplus = sum(sizes) + needed - self._retention_bytes
        for file, size in zip(files, sizes, strict=True):
            if surplus <= 0 and self._share_free(self._folder) >= FREE_SHARE:
                return
            file.unlink(missing_ok=True)
            surplus -= size
        if self._share_free(self._folder) < FREE_SHARE:
            raise OSError(f"less than {FREE_SHARE:.0%} of the disk is free, which is reserved for evidence")


def _number(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])


def _readings_table(blocks: list[_Readings]) -> Any:
    from arro3.core import Table

    counts = [len(block.rows) for block in blocks]
    values = np.concatenate([block.rows for block in blocks])
    columns = _device_and_time(blocks, counts)
    for number, name in enumerate(COLUMNS):
        columns[name] = _nullable(values[:, number])
    return Table(columns)


def _frames_table(frames: list[_Frame]) -> Any:
    from arro3.core import Array, DataType, Field, Table, list_array

    columns = _device_and_time(frames, [1] * len(frames))
    # Rounded to 0.01 °C, less than the noise. Of uncalibrated frames the words are stored instead.
    celsius = [frame.celsius.ravel().round(2) for frame in frames if frame.celsius is not None]
    ends = np.cumsum([0, *map(len, celsius)], dtype=np.int32)
    values = np.concatenate([*celsius, np.empty(0, np.float32)])
    lists = list_array(Array(ends), Array(values), type=DataType.list(Field("element", DataType.float32())))
    numbers = iter(range(len(celsius)))
    columns["celsius"] = lists.take(
        Array([None if frame.celsius is None else next(numbers) for frame in frames], DataType.int32())
    )
    words = [frame.words if frame.celsius is None else None for frame in frames]
    columns["words"] = Array(words, DataType.binary())
    return Table(columns)


def _nullable(values: NDArray[np.float64]) -> Any:
    """Convert to an Arrow array of 32-bit floats, with null for NaN."""
    from arro3.core import Array, DataType

    items = values.astype(object)
    items[np.isnan(values)] = None
    return Array(items.tolist(), DataType.float32())


def _device_and_time(items: Sequence[_Readings | _Frame], counts: list[int]) -> dict[str, Any]:
    from arro3.core import Array, DataType

    names = sorted({item.device for item in items})
    numbers = {name: number for number, name in enumerate(names)}
    indices = np.repeat(np.array([numbers[item.device] for item in items], np.int32), counts)
    device = Array(names, DataType.utf8()).take(Array(indices))
    times = np.array([item.time_ns for item in items], np.int64)
    return {
        "time": Array(np.repeat(times, counts)).cast(DataType.timestamp("ns", tz="UTC")),
        "device": device.cast(DataType.dictionary(DataType.int32(), DataType.utf8())),
    }
