"""Commands to text devices on demand: send a frame now, send the calibration again.

The session that speaks for the device sends the command. If another shard owns the device, the request is forwarded to
that shard once, and its answer is returned. The first shard checks the caller's credentials. A command that cannot be
sent is answered with the reason.
"""

from typing import Any, Protocol

import grpc

from embereye.process.grpc_server import Service
from embereye.process.identity.guard import CALLER
from embereye.process.reason import reason_of
from embereye.sensor.grpc.owner import Owner
from embereye.shard.links import Links, PeerAddress
from embereye.v1.ingest_pb2 import AskRequest, AskResponse
from embereye.v1.ingest_pb2_grpc import SensorsServicer, SensorsStub, add_SensorsServicer_to_server
from embereye.v1.shard_pb2 import Commands, Peer

FORWARD_SECONDS = 2.0  # for the device's owner to answer


class Commander(Owner, Protocol):
    """A shard whose devices take commands."""

    commands: Commands


class CommandService(SensorsServicer):
    """Serves `Sensors.Ask` for one shard."""

    def __init__(self, owner: Commander) -> None:
        self._owner = owner

    def service(self) -> Service:
        """The service for a gRPC server."""
        return Service(add_SensorsServicer_to_server, self, "embereye.v1.Sensors")

    async def Ask(self, request: AskRequest, context: Any) -> AskResponse:
        """Send a command to a device, through the shard that owns it, for callers that may speak for the device."""
        if CALLER.get() is not None:  # another shard, which has checked the caller
            return await self._ask(request)
        async with self._owner.access.admitted(context) as grant:
            if not grant.is_for(request.device):
                reason = f'the credentials are for device "{grant.device}", not for "{request.device[:80]}"'
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
            return await self._ask(request)

    async def _ask(self, request: AskRequest) -> AskResponse:
        commands = self._owner.commands
        word = {
            AskRequest.WORD_FRAME: commands.request,
            AskRequest.WORD_CALIBRATION: commands.calibration,
            AskRequest.WORD_START: commands.start,
        }.get(request.word, "")
        device = self._owner.fleet.owned(request.device)
        if device is None:
            peer = self._owner.fleet.peer_of(request.device)
            if peer is None:
                return AskResponse(reason=f"{request.device} is not declared in this fleet: add it to spec.sensors")
            if request.forwarded:
                return AskResponse(reason=f"{request.device} is being handed over to another shard: try again")
            return await _forwarded(request, peer, self._owner.links)
        if not word:
            return AskResponse(reason="there is no such command, or the fleet's spec.commands leaves it empty")
        if device.arrivals.speaker is None:
            return AskResponse(reason=f"{request.device} has no text connection now")
        device.arrivals.speaker.command(word)
        return AskResponse(asked=True)


async def _forwarded(request: AskRequest, peer: Peer, links: Links) -> AskResponse:
    """The answer of the shard that owns the device."""
    forwarded = AskRequest(device=request.device, word=request.word, forwarded=True)
    async with links.peer(PeerAddress(peer.shard, peer.control)) as link:
        try:
            return await SensorsStub(link).Ask(forwarded, timeout=FORWARD_SECONDS)
        except grpc.aio.AioRpcError as error:
            return AskResponse(
                reason=f"{request.device} is owned by {peer.shard}, which does not answer: {reason_of(error)}"
            )
