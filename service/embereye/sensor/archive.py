"""Raw readings to Parquet files, which DuckDB reads while more are written: `SELECT * FROM '*.parquet'`.

Needs pyarrow: the extra `parquet`. A file appears whole, under its final name, when it is full or old enough; the
oldest go when there are too many. Writing is a thread's work; what it cannot keep up with is dropped and counted.
"""

import asyncio
import logging
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embereye.process.lifecycle import UserError

logger = logging.getLogger(__name__)
ROTATE_SECONDS = 60.0  # until what was measured is in a file
ROTATE_ROWS = 500_000
PENDING_ROWS = 2 * ROTATE_ROWS  # in memory
RETENTION_BYTES = 10 * 1024**3  # in files of this shard


class Archive:
    """Collects rows and writes a file now and then; run `run()` as a task."""

    def __init__(
        self,
        folder: Path,
        shard: str,
        *,
        rotate_seconds: float = ROTATE_SECONDS,
        rotate_rows: int = ROTATE_ROWS,
        retention_bytes: int = RETENTION_BYTES,
    ) -> None:
        self._arrow = _pyarrow()
        self._folder = folder
        self._shard = shard
        self._rotate_seconds = rotate_seconds
        self._rotate_rows = rotate_rows
        self._retention_bytes = retention_bytes
        self._blocks: list[tuple[str, int, NDArray[np.float64]]] = []
        self._rows = 0
        self._full = asyncio.Event()
        self.written = 0  # rows
        self.dropped = 0  # rows
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, device: str, rows: NDArray[np.float64], now_ns: int) -> None:
        """Take readings (n, 4): smoke, flame, gas in ADC counts, digital flame; NaN: not said."""
        if self._rows + len(rows) > PENDING_ROWS:
            self.dropped += len(rows)
            return
        self._blocks.append((device, now_ns, rows))
        self._rows += len(rows)
        if self._rows >= self._rotate_rows:
            self._full.set()

    async def run(self) -> None:
        """Write until cancelled, and once more then."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._rotate_seconds):
                        await self._full.wait()
                except TimeoutError:
                    pass
                await asyncio.to_thread(self._write, self._take())
        finally:
            self._write(self._take())

    def _take(self) -> list[tuple[str, int, NDArray[np.float64]]]:
        blocks, self._blocks, self._rows = self._blocks, [], 0
        self._full.clear()
        return blocks

    def _write(self, blocks: list[tuple[str, int, NDArray[np.float64]]]) -> None:
        if not blocks:
            return
        try:
            self._write_file(blocks)
            self._retire()
        except OSError as error:
            self.dropped += sum(len(rows) for _, _, rows in blocks)
            logger.warning("readings could not be kept in %s: %s", self._folder, error)

    def _write_file(self, blocks: list[tuple[str, int, NDArray[np.float64]]]) -> None:
        arrow = self._arrow
        import pyarrow.parquet

        counts = [len(rows) for _, _, rows in blocks]
        values = np.concatenate([rows for _, _, rows in blocks])
        names = sorted({device for device, _, _ in blocks})
        numbers = {name: number for number, name in enumerate(names)}
        devices = np.repeat(np.array([numbers[device] for device, _, _ in blocks], np.int32), counts)
        times = np.repeat(np.array([now_ns for _, now_ns, _ in blocks], np.int64), counts)
        columns: dict[str, Any] = {
            "time": arrow.array(times, arrow.timestamp("ns", tz="UTC")),
            "device": arrow.DictionaryArray.from_arrays(arrow.array(devices), arrow.array(names)),
        }
        for number, name in enumerate(("smoke_adc", "flame_adc", "gas_adc", "flame_detected")):
            columns[name] = arrow.array(values[:, number].astype(np.float32), from_pandas=True)  # NaN becomes null
        path = self._folder / f"readings-{self._shard}-{time.time_ns()}.parquet"
        half = path.with_suffix(".part")
        pyarrow.parquet.write_table(arrow.table(columns), half, compression="zstd")
        half.replace(path)
        self.written += len(values)

    def _retire(self) -> None:
        files = sorted(self._folder.glob(f"readings-{self._shard}-*.parquet"))
        sizes = [file.stat().st_size for file in files]
        surplus = sum(sizes) - self._retention_bytes
        for file, size in zip(files[:-1], sizes, strict=False):
            if surplus <= 0:
                return
            file.unlink()
            surplus -= size


def _pyarrow() -> ModuleType:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError("--telemetry needs pyarrow: pip install 'embereye[parquet]'") from error
    return pa  # type: ignore[no-any-return,unused-ignore]
