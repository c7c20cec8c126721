"""The Alarms and Roster services, for people, programs and the operator.

Each call checks its request and passes it to one part of the hub, together with the caller that the interceptor
identified. People's actions are answered with their event, once it is durable. The parts' errors become gRPC statuses
in `statuses`. `FeedCalls` has the feeds and the history.

The operator sends each fleet's roster; the answer has the epochs of all rosters that the hub has.
"""

import time
from collections.abc import Callable

from embereye.hub.actions import Action
from embereye.hub.hub import Hub
from embereye.hub.refusals import InvalidError
from embereye.hub.roles import CALLER
from embereye.hub.services.feed import FeedCalls
from embereye.hub.services.statuses import end_with_status
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
    CandidateResult,
    FleetLedger,
    FleetRoster,
    FleetScaling,
    HeardRequest,
    HeardResponse,
    HeardShard,
    RetainRequest,
    RosterResponse,
    TellScalingResponse,
)
from embereye.v1.roster_pb2_grpc import RosterServicer


@end_with_status
class AlarmsService(FeedCalls):
    """Feeds, history and people's actions."""

    async def Zones(self, request: ZonesRequest, context: object) -> ZonesResponse:
        """List every zone's present state."""
        failing, scope = self._hub.committer.failing, CALLER.get().scope
        zones = [zone for zone in self._hub.zones.messages() if scope.has_zone(zone.namespace, zone.name)]
        return ZonesResponse(cursor=self._hub.feed.latest, zones=zones, failing=failing)

    async def Acknowledge(self, request: ActionRequest, context: object) -> AlarmEvent:
        """Acknowledge a zone's alarm."""
        return await self._act(Action.ACKNOWLEDGE, request)

    async def Reset(self, request: ActionRequest, context: object) -> AlarmEvent:
        """End a zone's alarm."""
        return await self._act(Action.RESET, request)

    async def Test(self, request: ActionRequest, context: object) -> AlarmEvent:
        """Start a zone's test, or end it."""
        return await self._act(Action.TEST, request)

    async def MarkFalse(self, request: MarkFalseRequest, context: object) -> AlarmEvent:
        """Mark an alarm as false, or remove the mark."""
        marks = self._hub.false_alarms
        if request.take_back:
            return await marks.take_back(CALLER.get(), request.alarm, request.who)
        return await marks.mark(CALLER.get(), request.alarm, request.reason, request.who)

    async def FalseAlarms(self, request: FalseAlarmsRequest, context: object) -> FalseAlarmsResponse:
        """List the alarms that are marked as false."""
        return FalseAlarmsResponse(false_alarms=self._hub.false_alarms.all())

    async def BeginSilence(self, request: BeginSilenceRequest, context: object) -> AlarmEvent:
        """Pause notifications for a zone, or for a device in it."""
        caller, namespace = CALLER.get(), request.namespace or "default"
        caller.check_zone(namespace, request.zone)
        return await self._hub.silences.begin(
            caller, namespace, request.zone, reason=request.reason, minutes=request.minutes, device=request.device,
            who=request.who,
        )  # fmt: skip

    async def EndSilence(self, request: EndSilenceRequest, context: object) -> AlarmEvent:
        """End a silence early."""
        return await self._hub.silences.end(CALLER.get(), request.id, request.who)

    async def Silences(self, request: SilencesRequest, context: object) -> SilencesResponse:
        """List the present silences."""
        scope, silences = CALLER.get().scope, self._hub.silences.all(self._hub.timeline.stepped_ns())
        return SilencesResponse(
            silences=[silence for silence in silences if scope.has_zone(silence.namespace, silence.zone)]
        )

    async def _act(self, action: Action, request: ActionRequest) -> AlarmEvent:
        if not request.zone:
            raise InvalidError("zone is empty. Name the zone to act on.")
        caller, namespace = CALLER.get(), request.namespace or "default"
        caller.check_zone(namespace, request.zone)
        return await self._hub.actions.perform(action, caller, namespace, request.zone, request.who, request.note)


@end_with_status
class RosterService(RosterServicer):
    """Receives the rosters from the operator, and answers how long ago shards reported."""

    def __init__(self, hub: Hub, candidate: Callable[[str], CandidateResult | None] = lambda fleet: None) -> None:
        """`candidate` returns the result of a fleet's candidate; None if it has none."""
        self._hub = hub
        self._candidate = candidate

    async def Set(self, request: FleetRoster, context: object) -> RosterResponse:
        """Replace the roster of one fleet."""
        _check_roster(request)
        await self._hub.coverage.set_roster(request)
        ledger = self._hub.coverage.ledgers.totals(request.fleet, time.time_ns())
        if ledger and (candidate := self._candidate(request.fleet)):
            ledger.candidate.CopyFrom(candidate)
        return self._response(ledger)

    async def Retain(self, request: RetainRequest, context: object) -> RosterResponse:
        """Remove all fleets that are not named."""
        await self._hub.coverage.retain(request.fleets)
        return self._response()

    async def TellScaling(self, request: FleetScaling, context: object) -> TellScalingResponse:
        """Receive a fleet's load and its needed shards; nothing is shown for an unknown fleet."""
        self._hub.coverage.scaling.update(request)
        return TellScalingResponse()

    async def Heard(self, request: HeardRequest, context: object) -> HeardResponse:
        """Return how long ago each shard reported."""
        silences, listening = self._hub.coverage.silences()
        shards = [HeardShard(fleet=fleet, shard=shard, silent_ns=ns) for (fleet, shard), ns in silences.items()]
        return HeardResponse(shards=shards, listening_ns=listening)

    def _response(self, ledger: FleetLedger | None = None) -> RosterResponse:
        fleets = self._hub.coverage.book.fleets.values()
        return RosterResponse(epochs={fleet.name: fleet.epoch for fleet in fleets if not fleet.derived}, ledger=ledger)


def _check_roster(roster: FleetRoster) -> None:
    if len([part for part in roster.fleet.split("/") if part]) != 3:
        raise InvalidError(f'fleet: "{roster.fleet}" is not of the form namespace/kind/name')
    if roster.deadline_ns <= 0:
        raise InvalidError(
            f"deadline_ns: {roster.deadline_ns} is not set. Send the fleet's spec.deadline in nanoseconds."
        )
    names: set[str] = set()
    for number, device in enumerate(roster.devices):
        if not device.id:
            raise InvalidError(f"devices[{number}].id is empty")
        if not device.zone:
            raise InvalidError(f'devices[{number}].zone of "{device.id}" is empty')
        if device.id in names:
            raise InvalidError(f'devices[{number}].id: "{device.id}" is declared twice')
        names.add(device.id)
