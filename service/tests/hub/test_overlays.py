"""Overlays: stored over restarts in either database, and refused if they are invalid."""

from dataclasses import replace

import pytest
from harness.stored import Stored

from embereye.hub.refusals import UnknownNameError
from embereye.hub.roles import Principal, Role
from embereye.hub.tables.overlays import Overlay

from .running import running

ADA = Principal("Ada", Role.OPERATOR, "Ada")
CAMERA = ("default/cameras/yard", "cam-1")
OVERLAY = Overlay("default/sensors/hall", "s-01", 0.5, 1 / 3, 0.6, 0.25)


async def test_an_overlay_stays_stored_until_it_is_removed(stored: Stored) -> None:
    async with running(stored) as hub:
        await hub.overlays.store(ADA, CAMERA, replace(OVERLAY, opacity=1))
        await hub.overlays.store(ADA, CAMERA, OVERLAY)
    async with running(stored) as hub:
        assert hub.overlays.all() == [(CAMERA, OVERLAY)]
        await hub.overlays.remove(ADA, CAMERA)
    async with running(stored) as hub:
        assert hub.overlays.all() == []
        with pytest.raises(UnknownNameError, match="cam-1: has no overlay"):
            await hub.overlays.remove(ADA, CAMERA)
        for change in ({"x": -0.1}, {"y": 1.1}, {"opacity": 2}, {"scale": 0.01}, {"scale": float("nan")}):
            with pytest.raises(ValueError, match="is not from"):
                await hub.overlays.store(ADA, CAMERA, replace(OVERLAY, **change))
