"""A controller without an API server: its health, and other operators' fleets, which delay no one."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import httpx2 as httpx  # lightkube's HTTP client
import pytest
from harness.eventually import eventually
from lightkube.core.exceptions import ApiError

from embereye.process.tasks import beside
from embereye.units import SECOND
from embereye_operator import controller as controller_module
from embereye_operator.api.names import MANAGED_BY
from embereye_operator.controller import Controller, FleetRecord
from embereye_operator.decide.cluster.watch_lag import WatchLag
from embereye_operator.decide.rollout.turns import GRACE, Turns
from embereye_operator.runtime.kubernetes.client.cache import Cache, key_of
from embereye_operator.runtime.kubernetes.runtime import KubernetesRuntime

from .fakes import SETTINGS, FakeRuntime
from .test_reconcile import condition, fleet_of

HALL, YARD = "default/sensors/hall", "default/sensors/yard"
NOW = 1000 * SECOND


class Runtime:
    """A runtime without objects whose lists never return."""

    def __init__(self) -> None:
        self.cache, self.lag = Cache(), WatchLag()
        self.world = self.links = self

    async def resync(self) -> list[Any]:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    async def check_kinds(self) -> None:
        pass

    async def retain(self, fleets: Any) -> None:
        pass


def halted() -> tuple[Controller, Turns]:
    turns = Turns()
    turns.note_image("new", NOW)
    assert not turns.why_not(HALL, NOW + GRACE)
    turns.note_failure(HALL, "it has failed")
    assert "halted" in turns.why_not(YARD, NOW + GRACE)
    return Controller(cast("KubernetesRuntime", Runtime()), replace(SETTINGS, turns=turns)), turns


async def test_another_operators_fleet_halts_no_rollout() -> None:
    controller, turns = halted()
    await controller._leave_alone(("SensorFleet", "default", "hall"), FleetRecord(), "green/operator owns it")
    assert not turns.why_not(YARD, NOW + GRACE)


async def test_a_former_leader_forgets_halted_rollouts() -> None:
    controller, turns = halted()
    controller.lead(False)
    turns.note_image("new", NOW + GRACE)
    assert "has just started" in turns.why_not(YARD, NOW + GRACE)
    assert not turns.why_not(YARD, NOW + 2 * GRACE)


async def test_a_new_leader_reconciles_nothing_before_its_certificate() -> None:
    controller = Controller(cast("KubernetesRuntime", Runtime()), SETTINGS)
    controller._ready_to_ask.set()  # it was leader before
    controller.lead(False)
    controller.lead(True)
    async with beside(controller._wait_for_certificate(), name="wait") as waiting:
        await asyncio.sleep(0)
        assert not waiting.done()
        controller._ready_to_ask.set()
        await waiting


class Clock:
    """A replacement of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


async def test_an_operator_that_waits_for_an_absent_server_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(controller_module, "time", clock)
    monkeypatch.setattr(controller_module, "PERIOD", 0.01)
    controller = Controller(cast("KubernetesRuntime", Runtime()), SETTINGS)
    async with beside(controller.run(), name="controller"):
        clock.now += 3600
        assert "event loop" in controller.unhealthy()
        await eventually(lambda: not controller.unhealthy())


class Stocked(FakeRuntime):
    """A runtime with a cache, as watches fill it."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.world = self.writer = self.links = self.cluster = self


async def test_passes_detect_alternating_writers_of_the_number_of_shards() -> None:
    runtime, document = Stocked(), fleet_of(4, autoscaling={"mode": "hpa"})
    controller = Controller(cast("KubernetesRuntime", runtime), SETTINGS)
    for turn in range(4):
        shards, writer = 2 + turn % 2, ("argocd-controller", MANAGED_BY)[turn % 2]
        owned = {"manager": writer, "time": f"2026-01-01T00:00:0{turn}Z", "fieldsV1": {"f:spec": {"f:shards": {}}}}
        metadata = {"resourceVersion": str(turn + 1), "generation": turn + 1, "managedFields": [owned]}
        manifest_ = {**document, "metadata": {**document["metadata"], **metadata}}
        manifest_["spec"] = {**document["spec"], "shards": shards}
        runtime.cache.put(manifest_)
        await controller._pass(key_of(manifest_))
    (known,) = controller.records.values()
    status, reason, message = condition(known.status, "ScalingActive")
    assert (status, reason) == ("False", "ShardsContested")
    assert f"{MANAGED_BY} (3) and argocd-controller (2)" in message


async def test_refusals_of_the_api_server_are_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    runtime, document = Stocked(), fleet_of(4)
    controller = Controller(cast("KubernetesRuntime", runtime), SETTINGS)
    document["metadata"]["resourceVersion"] = "1"
    runtime.cache.put(document)
    for code in (403, 404, 409):
        body = {"code": code, "message": f"refused with {code}"}
        record = FleetRecord()
        await controller._note_failure(key_of(document), record, ApiError(response=httpx.Response(code, json=body)))
        assert f"refused with {code}" in record.failing
    assert caplog.records
    assert all(entry.exc_info is None for entry in caplog.records)
