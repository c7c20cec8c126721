"""The staff of a building: acknowledges alarms, and resets them later when the fire is out."""

import contextlib

import grpc

from embereye.process.grpc_server import channel
from embereye.v1.alarms_pb2 import ActionRequest, Zone, ZonesRequest, ZoneState
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from harness.records.witness import OPTIONS

WHO = "the soak"
TIMEOUT = 5.0  # seconds per call


async def reset_zones(address: str, token: str) -> list[str]:
    """Acknowledge or reset every zone of the hub at `address` once, as `token`. Returns the names of reset zones.

    Errors, because the hub is down or a fire has started again, are left for the next call.
    """
    reset = []
    async with channel(address, OPTIONS, token=token) as link:
        alarms = AlarmsStub(link)

        async def handle(zone: Zone) -> None:
            request = ActionRequest(namespace=zone.namespace, zone=zone.name, who=WHO)
            if zone.state == ZoneState.ZONE_STATE_ALARM:
                await alarms.Acknowledge(request, timeout=TIMEOUT)
            elif zone.state == ZoneState.ZONE_STATE_RESTORED:
                await alarms.Reset(request, timeout=TIMEOUT)
                reset.append(zone.name)

        with contextlib.suppress(grpc.aio.AioRpcError):
            for zone in (await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)).zones:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await handle(zone)
    return reset
