"""The Alarms and Roster services, for people, programs and the operator.

Each call checks its request and passes it to one part of the hub, together with the caller that the interceptor
identified. People's actions are answered with their event, once it is durable. The parts' errors become gRPC statuses
here. `FeedCalls` has the feeds and the history.

The operator sends each fleet's roster; the answer has the epochs of all rosters that the hub has.
"""

import time

import grpc

from embereye.hub.actions import Action, UnknownZoneError, check_action
from embereye.hub.committer import StoreFailingError
from embereye.hub.coverage_keeper import OutdatedError
from embereye.hub.false_alarms import NotMarkedError, UnknownAlarmError
from embereye.hub.hub import Hub
from embereye.hub.roles import CALLER
from embereye.hub.services.feed import FeedCalls
from embereye.hub.silences import TooManySilencesError, UnknownSilenceError
from embereye.v1.alarms_pb2 import (
    ActionRequest,
    AlarmEvent,
    BeginSilenceRequest,
    EndSilenceRequest,
    FalseAlarmsRequest,
    FalseAlarmsResponse,
    MarkFalseRequest,
    SilencesRequest,
    SilencesResponse,
    ZonesRequest,
    ZonesResponse,
)
from embereye.v1.roster_pb2 import (
    FleetLedger,
    FleetRoster,
    FleetScaling,
    RetainRequest,
    RosterResponse,
    TellScalingResponse,
)
from embereye.v1.roster_pb2_grpc import RosterServicer
from embereye.zone.state import NotAllowedError

AnyContext = grpc.aio.ServicerContext[object, object]


class AlarmsService(FeedCalls):
    """Feeds, history and people's actions."""

    async def Zones(self, request: ZonesRequest, context: object) -> ZonesResponse:
        """List every zone's present state."""
        failing, scope = self._hub.committer.failing, CALLER.get().scope
        zones = [zone for zone in self._hub.zones.messages() if scope.has_zone(zone.namespace, zone.name)]
        return ZonesResponse(cursor=self._hub.feed.latest, zones=zones, failing=failing)

    async def Acknowledge(self, request: ActionRequest, context: AnyContext) -> AlarmEvent:
        """Acknowledge a zone's alarm."""
        return await self._act(Action.ACKNOWLEDGE, request, context)

    async def Reset(self, request: ActionRequest, context: AnyContext) -> AlarmEvent:
        """End a zone's alarm."""
        return await self._act(Action.RESET, request, context)

    async def Test(self, request: ActionRequest, context: AnyContext) -> AlarmEvent:
        """Start a zone's test, or end it."""
        return await self._act(Action.TEST, request, context)

    async def MarkFalse(self, request: MarkFalseRequest, context: AnyContext) -> AlarmEvent:
        """Mark an alarm as false, or remove the mark."""
        if problem := check_action(request.who, request.reason, "reason"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        if not request.take_back and not request.reason.strip():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "reason is empty. Say what looked like a fire.")
        marks = self._hub.false_alarms
        try:
            if request.take_back:
                return await marks.take_back(CALLER.get(), request.alarm, request.who)
            return await marks.mark(CALLER.get(), request.alarm, request.reason.strip(), request.who)
        except UnknownAlarmError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except NotMarkedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except StoreFailingError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def FalseAlarms(self, request: FalseAlarmsRequest, context: object) -> FalseAlarmsResponse:
        """List the alarms that are marked as false."""
        return FalseAlarmsResponse(false_alarms=self._hub.false_alarms.all())

    async def BeginSilence(self, request: BeginSilenceRequest, context: AnyContext) -> AlarmEvent:
        """Pause notifications for a zone, or for a device in it."""
        if problem := check_action(request.who, request.reason, "reason"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        await check_zone(context, request.namespace or "default", request.zone)
        try:
            return await self._hub.silences.begin(
                CALLER.get(), request.namespace or "default", request.zone, reason=request.reason,
                minutes=request.minutes, device=request.device, who=request.who,
            )  # fmt: skip
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except UnknownSilenceError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except TooManySilencesError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except StoreFailingError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def EndSilence(self, request: EndSilenceRequest, context: AnyContext) -> AlarmEvent:
        """End a silence early."""
        if problem := check_action(request.who, ""):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        try:
            return await self._hub.silences.end(CALLER.get(), request.id, request.who)
        except UnknownSilenceError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except StoreFailingError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    async def Silences(self, request: SilencesRequest, context: object) -> SilencesResponse:
        """List the present silences."""
        scope, silences = CALLER.get().scope, self._hub.silences.all(self._hub.timeline.stepped_ns())
        return SilencesResponse(
            silences=[silence for silence in silences if scope.has_zone(silence.namespace, silence.zone)]
        )

    async def _act(self, action: Action, request: ActionRequest, context: AnyContext) -> AlarmEvent:
        if problem := check_action(request.who, request.note):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        if not request.zone:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "zone is empty. Name the zone to act on.")
        namespace = request.namespace or "default"
        await check_zone(context, namespace, request.zone)
        try:
            return await self._hub.actions.perform(
                action, CALLER.get(), namespace, request.zone, request.who, request.note
            )
        except UnknownZoneError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except NotAllowedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except StoreFailingError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


async def check_zone(context: AnyContext, namespace: str, zone: str) -> None:
    """End the call with PERMISSION_DENIED if the caller is limited to other zones."""
    caller = CALLER.get()
    if not caller.scope.has_zone(namespace, zone):
        sentence = f"{caller.name} is limited to {caller.scope.words}: {namespace[:80]}/{zone[:80]} is none of them"
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, sentence)


class RosterService(RosterServicer):
    """Receives the rosters from the operator."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def Set(self, request: FleetRoster, context: AnyContext) -> RosterResponse:
        """Replace the roster of one fleet."""
        if problem := _check_roster(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        try:
            await self._hub.coverage.set_roster(request)
        except OutdatedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except StoreFailingError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return self._response(self._hub.coverage.ledgers.totals(request.fleet, time.time_ns()))

    async def Retain(self, request: RetainRequest, context: AnyContext) -> RosterResponse:
        """Remove all fleets that are not named."""
        try:
            await self._hub.coverage.retain(request.fleets)
        except StoreFailingError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return self._response()

    async def TellScaling(self, request: FleetScaling, context: AnyContext) -> TellScalingResponse:
        """Receive a fleet's load and its needed shards; nothing is shown for an unknown fleet."""
        self._hub.coverage.scaling.update(request)
        return TellScalingResponse()

    def _response(self, ledger: FleetLedger | None = None) -> RosterResponse:
        fleets = self._hub.coverage.book.fleets.values()
        return RosterResponse(epochs={fleet.name: fleet.epoch for fleet in fleets if not fleet.derived}, ledger=ledger)


def _check_roster(roster: FleetRoster) -> str:
    if len([part for part in roster.fleet.split("/") if part]) != 3:
        return f'fleet: "{roster.fleet}" is not of the form namespace/kind/name'
    if roster.deadline_ns <= 0:
        return f"deadline_ns: {roster.deadline_ns} is not set. Send the fleet's spec.deadline in nanoseconds."
    names: set[str] = set()
    for number, device in enumerate(roster.devices):
        if not device.id:
            return f"devices[{number}].id is empty"
        if not device.zone:
            return f'devices[{number}].zone of "{device.id}" is empty'
        if device.id in names:
            return f'devices[{number}].id: "{device.id}" is declared twice'
        names.add(device.id)
    return ""
