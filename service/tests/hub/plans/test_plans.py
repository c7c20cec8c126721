"""Floor plans and devices' places: over restarts, backups and moves into another database."""

import asyncio
from pathlib import Path

import pytest
from harness.stored import Stored

from embereye.hub.plans import keeper
from embereye.hub.plans.images import PlanImage
from embereye.hub.refusals import InvalidError, UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.plans import Place
from embereye_cli.main import main

from ..running import running

ADA = Principal("Ada", Role.ADMIN, "Ada")
IMAGE = PlanImage("image/png", b"\x89PNG pixels", 400, 300)
DEVICE = ("default/sensors/hall", "s-01")


async def test_plans_and_devices_places_survive_a_restart(stored: Stored) -> None:
    async with running(stored) as hub:
        await hub.plans.store(ADA, "Erdgeschoß (Ost)", IMAGE)
        await hub.plans.place(ADA, "Erdgeschoß (Ost)", DEVICE, Place(0.25, 0.5))
        await hub.plans.place(ADA, "Erdgeschoß (Ost)", DEVICE, Place(0.75, 1 / 3))
        await hub.plans.place(ADA, "Erdgeschoß (Ost)", (DEVICE[0], "s-02"), Place(0, 1))
        await hub.plans.remove_device(ADA, "Erdgeschoß (Ost)", (DEVICE[0], "s-02"))
    async with running(stored) as hub:
        (plan,) = hub.plans.all()
        assert (plan.width, plan.height, plan.made_by) == (400, 300, "Ada")
        assert plan.devices == {DEVICE: Place(0.75, 1 / 3)}
        assert await hub.plans.image(plan.name) == IMAGE.data
        other = PlanImage("image/jpeg", b"\xff\xd8 other pixels", 800, 600)
        await hub.plans.store(ADA, plan.name, other)
        assert hub.plans.find(plan.name).devices == {DEVICE: Place(0.75, 1 / 3)}, "they stay where they are"
        await hub.plans.store(ADA, "Attic", IMAGE)
        assert [plan.name for plan in hub.plans.all()] == ["Erdgeschoß (Ost)", "Attic"], "in order of creation"
        await hub.plans.remove(ADA, plan.name)
        await hub.plans.store(ADA, plan.name, other)
    async with running(stored) as hub:
        plan = hub.plans.find("Erdgeschoß (Ost)")
        assert (plan.media, plan.devices) == ("image/jpeg", {}), "a new plan of the same name starts empty"
        actions = [entry.action for entry in await hub.history.audit(0, 20)]
        assert actions[:3] == ["store plan", "remove plan", "store plan"]
        assert {"place on plan", "take off plan"} <= set(actions)


async def test_a_plan_is_part_of_a_backup(stored: Stored, tmp_path: Path) -> None:
    async with running(stored) as hub:
        await hub.plans.store(ADA, "Ground floor", IMAGE)
        await hub.plans.place(ADA, "Ground floor", DEVICE, Place(0.25, 0.5))
    where = ["--database", stored.address] if stored.address else ["--data", str(stored.folder)]
    copy = tmp_path / "copy.sqlite"
    assert await asyncio.to_thread(main, ["hub", "backup", *where, str(copy)]) == 0
    other = Stored(tmp_path / "restored")
    other.folder.mkdir()
    assert await asyncio.to_thread(main, ["hub", "restore", "--data", str(other.folder), str(copy)]) == 0
    async with running(other) as hub:
        assert hub.plans.find("Ground floor").devices == {DEVICE: Place(0.25, 0.5)}
        assert await hub.plans.image("Ground floor") == IMAGE.data


async def test_an_invalid_change_of_a_plan_is_refused_with_a_reason(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(stored) as hub:
        for name in ("", " x", "a/b", "x" * 64, "\u200bx", "a\nb"):
            with pytest.raises(InvalidError, match="is not a valid plan name"):
                await hub.plans.store(ADA, name, IMAGE)
        await hub.plans.store(ADA, "one", IMAGE)
        monkeypatch.setattr(keeper, "MAX_PLANS", 1)
        monkeypatch.setattr(keeper, "MAX_DEVICES", 1)
        with pytest.raises(InvalidError, match="there are 1 plans already"):
            await hub.plans.store(ADA, "two", IMAGE)
        with pytest.raises(InvalidError, match="is not on the plan"):
            await hub.plans.place(ADA, "one", DEVICE, Place(1.5, 0))
        await hub.plans.place(ADA, "one", DEVICE, Place(1, 0))
        with pytest.raises(InvalidError, match="1 devices are on the plan already"):
            await hub.plans.place(ADA, "one", (DEVICE[0], "s-02"), Place(0, 0))
        with pytest.raises(UnknownNameError, match='no plan "two"'):
            await hub.plans.remove(ADA, "two")
        with pytest.raises(UnknownNameError, match="s-02 of default/sensors/hall is not on the plan one"):
            await hub.plans.remove_device(ADA, "one", (DEVICE[0], "s-02"))
