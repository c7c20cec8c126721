"""Bring the messages that devices send by HTTP to the shards that own the devices.

A device reaches any shard of its fleet, as behind a Service. Its message is answered once the owner has analysed it,
here or at another shard. During a hand-over, both get it. The new owner also gets the last states of a device, because
a sleeping one may say nothing for hours.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence

import grpc

from embereye.process.tasks import Tasks
from embereye.process.timing.clock import now_ns
from embereye.sensor.fleet import Fleet
from embereye.sensor.source import PUSH, Message, Outcome, PushSource
from embereye.shard.access import DeviceAccess, Grant, Names
from embereye.shard.links import PeerAddress
from embereye.v1.ingest_pb2 import DeliverRequest, PushedMessage, PushOutcome
from embereye.v1.ingest_pb2_grpc import RelaysStub

logger = logging.getLogger(__name__)
ACCEPTED, UNKNOWN, UNREADABLE, UNAVAILABLE = 202, 404, 422, 503  # status codes of HTTP
ANSWER_SECONDS = 3.0  # for another shard's answer
HAND_OVER_SECONDS = 60.0  # in which the new owner has to accept a device's states
RETRY_SECONDS = 0.5
TOGETHER = 200  # messages between two pauses for other work


class MessageRouter:
    """Implements `embereye.sensor.source.Router`."""

    def __init__(
        self, fleet: Fleet, access: DeviceAccess, dial: Callable[[PeerAddress], grpc.aio.Channel]
    ) -> None:  # fmt: skip
        self.source: PushSource | None = None
        self._fleet = fleet
        self._access = access
        self._dial = dial
        self._channels: dict[PeerAddress, grpc.aio.Channel] = {}
        self._handing_over: set[str] = set()

    def admit(self, host: str, headers: Iterable[tuple[str, str]], names: Names | None) -> Grant:
        """Return the devices that a request may speak for; see `Router`."""
        return self._access.check_call(host, headers, names)

    def is_declared(self, device: str) -> bool:
        """True if the fleet declares `device`; see `Router`."""
        return device in self._fleet.owned_devices or self._fleet.is_elsewhere(device)

    def receive_pushed(self, message: PushedMessage) -> PushOutcome:
        """Analyse a message that reached another shard, which has parsed it."""
        content = message.body if message.mapped else json.loads(message.body)
        outcome = self.receive(Message(message.device, content, message.mapped, message.heard_ns))
        return PushOutcome(status=outcome.status, problem=outcome.problem)

    def receive(self, message: Message) -> Outcome:
        """Analyse a message of a device of this shard."""
        device = message.device
        if not self._fleet.name:
            return Outcome(UNAVAILABLE, "this shard has no assignment yet: send it again")
        if device not in self._fleet.owned_devices:
            why = f'device "{device[:80]}": not declared in this fleet: add it to spec.sensors, with source: push'
            return Outcome(UNKNOWN, why)
        if self.source is None:
            return Outcome(UNAVAILABLE, "this shard does not listen for readings by HTTP")
        why = self.source.read_pushed(message)
        return Outcome(UNREADABLE, why) if why else Outcome()

    async def deliver(self, messages: Sequence[Message]) -> list[Outcome]:
        """Have each message analysed by the owner of its device; see `Router`."""
        outcomes: dict[int, Outcome] = {}
        by_peer: dict[PeerAddress, list[int]] = {}
        for number, message in enumerate(messages):
            if number % TOGETHER == TOGETHER - 1:
                await asyncio.sleep(0)
            peer = self._fleet.peer_of(message.device)
            if peer is not None:
                by_peer.setdefault(PeerAddress(peer.shard, peer.control), []).append(number)
            if peer is None or message.device in self._fleet.owned_devices:
                outcomes[number] = self.receive(message)
        if not by_peer:
            return list(outcomes.values())
        answers = await asyncio.gather(
            *(self._forward(peer, [messages[number] for number in numbers]) for peer, numbers in by_peer.items())
        )
        for numbers, answered in zip(by_peer.values(), answers, strict=True):
            outcomes = dict(zip(numbers, answered, strict=True)) | outcomes
        return [outcomes[number] for number in range(len(messages))]

    async def _forward(self, peer: PeerAddress, messages: Sequence[Message]) -> list[Outcome]:
        channel = self._channels.get(peer)
        if channel is None:
            channel = self._channels[peer] = self._dial(peer)
        try:
            request = DeliverRequest(messages=map(_encoded, messages))
            answer = await RelaysStub(channel).Deliver(request, timeout=ANSWER_SECONDS)
            if len(answer.outcomes) == len(messages):
                return [_unless_late(peer, outcome) for outcome in answer.outcomes]
            why = "its answer is incomplete"
        except grpc.aio.AioRpcError as error:
            why = error.details() or error.code().name
        if self._channels.get(peer) is channel:
            del self._channels[peer]
        await channel.close(None)
        problem = f"shard {peer.shard}, which owns the device, does not answer ({why}): send it again"
        return [Outcome(UNAVAILABLE, problem)] * len(messages)

    def hand_over(self, tasks: Tasks) -> None:
        """Give the states of leaving devices to their new owners, in a task of `tasks`. Call it on each assignment."""
        for name in self._fleet.handed_over:
            device = self._fleet.owned_devices[name]
            scheme = device.spec.source.partition(":")[0]
            if scheme == PUSH and device.arrivals.watch.heard_ns and name not in self._handing_over:
                self._handing_over.add(name)
                tasks.start(self._hand_over(name), name="push-hand-over")

    async def _hand_over(self, name: str) -> None:
        device = self._fleet.owned_devices[name]
        last_ns = now_ns() + int(HAND_OVER_SECONDS * 1e9)
        try:
            while (peer := self._fleet.peer_of(name)) and now_ns() < last_ns:
                states = {quantity: value for quantity, value in device.states.values.items() if quantity != "test"}
                message = Message(name, {"readings": states}, heard_ns=device.arrivals.watch.heard_ns)
                (outcome,) = await self._forward(PeerAddress(peer.shard, peer.control), [message])
                if outcome.status == ACCEPTED:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            logger.warning("device %s: its states could not be handed over; it is dark until it reports", name)
        finally:
            self._handing_over.discard(name)

    async def close(self) -> None:
        """Close the channels to other shards."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)


def _unless_late(peer: PeerAddress, outcome: PushOutcome) -> Outcome:
    """Return the owner's `outcome`, but 503 if it does not know yet that it owns the device."""
    if outcome.status != UNKNOWN:
        return Outcome(outcome.status, outcome.problem)
    return Outcome(UNAVAILABLE, f"shard {peer.shard} has not taken the device over yet")


def _encoded(message: Message) -> PushedMessage:
    body = message.content if message.mapped else json.dumps(message.content).encode()
    return PushedMessage(device=message.device, body=body, mapped=message.mapped, heard_ns=message.heard_ns)
