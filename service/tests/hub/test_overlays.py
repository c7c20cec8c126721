"""Thermal pictures over cameras': kept over restarts in either database, and refused where they cannot be."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from harness.stored import Stored

from embereye.hub.access.roles import Principal, Role
from embereye.hub.hub import Hub
from embereye.hub.overlays.keeper import UnknownOverlayError
from embereye.hub.overlays.records import Overlay

ADA = Principal("Ada", Role.OPERATOR, "Ada")
CAMERA = ("default/cameras/yard", "cam-1")
OVERLAY = Overlay("default/sensors/hall", "s-01", 0.5, 1 / 3, 0.6, 0.25)


@contextlib.asynccontextmanager
async def running(stored: Stored) -> AsyncIterator[Hub]:
    threads = stored.threads()
    hub = Hub(threads, retention_ns=10**15)
    await hub.open()
    task = asyncio.ensure_future(hub.run())
    try:
        yield hub
    finally:
        await hub.committer.flush(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await threads.close()


async def test_an_overlay_is_kept_until_it_is_removed(stored: Stored) -> None:
    async with running(stored) as hub:
        await hub.overlays.store(ADA, CAMERA, replace(OVERLAY, opacity=1))
        await hub.overlays.store(ADA, CAMERA, OVERLAY)
    async with running(stored) as hub:
        assert hub.overlays.all() == [(CAMERA, OVERLAY)]
        await hub.overlays.remove(ADA, CAMERA)
    async with running(stored) as hub:
        assert hub.overlays.all() == []
        with pytest.raises(UnknownOverlayError, match="nothing lies over the picture of cam-1"):
            await hub.overlays.remove(ADA, CAMERA)
        for wrong in ({"x": -0.1}, {"y": 1.1}, {"opacity": 2}, {"scale": 0.01}, {"scale": float("nan")}):
            with pytest.raises(ValueError, match="is not from"):
                await hub.overlays.store(ADA, CAMERA, replace(OVERLAY, **wrong))
