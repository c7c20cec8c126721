"""The operator's wall clock is set while it works: shards stay, and changes in progress finish."""

import asyncio
import sys
from pathlib import Path

import pytest

from embereye.units import SECOND

from .test_up import house, talking

STEPPED = Path(__file__).parents[3] / "service" / "tests" / "hostile" / "stepped.py"
HOUR, YEAR = 3_600, 31_536_000


@pytest.mark.slow
async def test_setting_an_operators_clock_moves_nothing_and_delays_no_change(tmp_path: Path) -> None:
    step = tmp_path / "step"
    step.write_bytes(bytes(8))

    def set_clock(seconds: int) -> None:
        with step.open("r+b") as file:
            file.write((seconds * SECOND).to_bytes(8, sys.byteorder, signed=True))

    async with (
        house(tmp_path, shards=2, program=[str(STEPPED), str(step)]) as running,
        talking(running, "s-01", "s-02"),
    ):

        def covered() -> bool:
            return all(device["covered"] for device in running.devices().values())

        await running.until(covered)
        owners = {name: device["shards"] for name, device in running.devices().items()}
        for seconds in (1, -1, HOUR, -HOUR, YEAR, -YEAR):
            set_clock(seconds)
            await asyncio.sleep(3)  # more than one pass
            assert covered()
            assert {name: device["shards"] for name, device in running.devices().items()} == owners
        # Remove one shard, and set the clock while its devices move.
        running.manifest.write_text(running.manifest.read_text().replace("shards: 2", "shards: 1"))
        await asyncio.sleep(0.5)
        set_clock(-2 * YEAR)

        def together() -> bool:
            shards = {tuple(device["shards"]) for device in running.devices().values()}
            return covered() and len(shards) == 1

        await running.until(together, 40)
        assert not running.said("DrainStuck")
        assert not running.said("does not answer")
