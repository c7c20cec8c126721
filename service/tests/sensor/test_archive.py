"""Raw readings in Parquet files."""

import asyncio
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

from embereye.process.lifecycle import UserError
from embereye.sensor.archive import Archive


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_without_pyarrow_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"embereye\[parquet\]"):
        Archive(tmp_path, "s-0")


async def test_readings_are_in_whole_files_and_the_oldest_go(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: the extra parquet")
    archive = Archive(tmp_path, "s-0", rotate_rows=10, rotate_seconds=60, retention_bytes=1)
    writing = asyncio.ensure_future(archive.run())
    for number in range(3):
        archive.add("a", np.array([[283.0, math.nan, 2.0, 0.0]] * 6), number)
        archive.add("b", np.array([[1.0, 2.0, 3.0, 1.0]] * 6), number)
        async with asyncio.timeout(20):
            while archive.written < 12 * (number + 1):
                await asyncio.sleep(0.01)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    [file] = tmp_path.glob("*.parquet")
    table = parquet.read_table(file).to_pydict()
    assert table["device"] == ["a"] * 6 + ["b"] * 6
    assert table["flame_adc"][0] is None
    assert table["smoke_adc"][0] == 283
    assert archive.dropped == 0
