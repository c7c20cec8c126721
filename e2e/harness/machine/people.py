"""People who see to alarms, as in any building: they acknowledge what is in alarm, and later reset what is over."""

import contextlib

import grpc

from embereye.process.grpc_server import channel
from embereye.v1.alarms_pb2 import ActionRequest, Zone, ZonesRequest, ZoneState
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from harness.records.witness import OPTIONS

WHO = "the soak"
TIMEOUT = 5.0  # seconds, of a call


async def reset_zones(address: str, token: str) -> list[str]:
    """See to all zones of the hub at `address` once, as whoever `token` is; the names of those that were reset.

    What does not work, because the hub is away or it burns again, is left for the next time.
    """
    found = []
    async with channel(address, OPTIONS, token=token) as link:
        alarms = AlarmsStub(link)

        async def see_to(zone: Zone) -> None:
            request = ActionRequest(namespace=zone.namespace, zone=zone.name, who=WHO)
            if zone.state == ZoneState.ZONE_STATE_ALARM:
                await alarms.Acknowledge(request, timeout=TIMEOUT)
            elif zone.state == ZoneState.ZONE_STATE_RESTORED:
                await alarms.Reset(request, timeout=TIMEOUT)
                found.append(zone.name)

        with contextlib.suppress(grpc.aio.AioRpcError):
            for zone in (await alarms.Zones(ZonesRequest(), timeout=TIMEOUT)).zones:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await see_to(zone)
    return found
