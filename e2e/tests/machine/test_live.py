"""Faults on real processes: that the site, its books and its judge work; the whole matrix is `make faults`."""

import asyncio
from pathlib import Path

import pytest
from harness.devices import Film
from harness.machine.faults import FAULTS
from harness.machine.local_site import Layout, running_site
from harness.matrix.matrix import try_faults
from harness.records.diary import Diary
from harness.records.probers import EvidenceProber

from embereye.sim.scenes.scene import render

pytestmark = pytest.mark.slow


async def test_a_killed_shard_a_killed_hub_and_both_lose_and_double_nothing(tmp_path: Path) -> None:
    loops = render(160, 120, 7, 10.0)
    film = Film.of(loops)
    diary = Diary(tmp_path / "results", print)
    async with running_site(tmp_path, diary, Layout(fires=8), film) as site:
        prober = EvidenceProber(site.hub_control, "default", diary, site.prober_credentials(), rate=5.0)
        site.begin(prober.run(), "evidence prober")
        before = set(site.tree())
        for names in (("shard killed",), ("hub killed", "camera shard killed")):
            outcome = await try_faults(site, prober, [FAULTS[name] for name in names])
            assert outcome.ok, outcome
            assert outcome.fires == 4
        assert outcome.evidence > 20
        gone = before - set(site.tree())
        assert len(gone) >= 3, "harm was done"
        # The same sensors burn again after a reset, and each fire has a separate alarm.
        site.put_out()
        async with asyncio.timeout(60):
            while site.burnt:
                await site.reset()
                await asyncio.sleep(0.5)
        outcome = await try_faults(site, prober, [FAULTS["planned move"]])
        assert outcome.ok, outcome
        assert all(len(site.witness.alarms(zone)) == 2 for zone in site.burnt)
