"""Events that a server accepts in one namespace and not in another."""

from typing import Any

import httpx2 as httpx  # lightkube's HTTP client
import pytest
from lightkube.core.exceptions import ApiError

from embereye_operator.api.fleets import FLEET_TYPES, FleetReference
from embereye_operator.runtime.kubernetes.events import EventWriter


class Server:
    """A server whose webhook fails for events in `failing`."""

    def __init__(self, failing: str) -> None:
        self.failing = failing
        self.asked: list[str] = []
        self.written: list[str] = []

    async def patch(self, *_: Any, **__: Any) -> None:
        raise ApiError(response=httpx.Response(404, json={"code": 404, "message": "not found"}))

    async def create(self, event: Any) -> None:
        namespace = event.metadata.namespace
        self.asked.append(namespace)
        if namespace == self.failing:
            answer = {"code": 500, "message": "failed calling webhook: no endpoints available"}
            raise ApiError(response=httpx.Response(500, json=answer))
        self.written.append(event.message)


async def test_a_failing_webhook_in_one_namespace_does_not_affect_others() -> None:
    server: Any = Server("south")
    writer = EventWriter(server)
    fleets = [FleetReference(FLEET_TYPES["SensorFleet"], place, "hall", "u") for place in ("south", "south", "north")]
    for number, fleet in enumerate(fleets):
        writer.note(fleet, "Normal", "Scaled", f"event {number}")
    for _ in range(2):
        with pytest.raises(ApiError):
            await writer._write_due()
    assert server.written == ["event 2"]
    assert server.asked == ["south", "north", "south"], "no other event in that namespace is tried meanwhile"
    server.failing = ""
    await writer._write_due()
    assert server.written == ["event 2", "event 0", "event 1"]
