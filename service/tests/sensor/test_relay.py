"""The relay to another shard: each line arrives once and in order, or is refused where it was sent."""

import asyncio
import gc
import random
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import grpc
from harness.eventually import eventually

from embereye.process.grpc_server import GrpcServer, Service
from embereye.process.tasks import Tasks
from embereye.sensor.relay import Limits, Origin, Relay, Relays
from embereye.sensor.relay_service import _Caller
from embereye.sensor.sessions import Sessions
from embereye.sensor.shard import SensorShard
from embereye.shard.links import PeerAddress
from embereye.v1.ingest_pb2 import DeliverRequest, DeliverResponse, RelayedConnection, RelayRequest, RelayResponse
from embereye.v1.ingest_pb2_grpc import RelaysServicer, add_RelaysServicer_to_server

NOBODY = PeerAddress("other", "127.0.0.1:1")


class Owner(RelaysServicer):
    """Stores the received lines by connection, and reads slowly."""

    def __init__(self) -> None:
        self.lines: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.closed: list[int] = []

    async def Pass(self, requests: AsyncIterator[RelayRequest], context: object) -> AsyncIterator[RelayResponse]:
        async for request in requests:
            for connection in request.connections:
                self.lines[connection.since_ns] += connection.lines
                if connection.closed:
                    self.closed.append(connection.since_ns)
            await asyncio.sleep(0)
        if False:
            yield RelayResponse()

    async def Deliver(self, request: DeliverRequest, context: object) -> DeliverResponse:
        return DeliverResponse()


async def test_each_of_many_lines_arrives_once_and_in_order_or_is_refused(debugged: bool) -> None:
    limits = Limits(connection=2_000)  # some find no room
    producers, each = 16, (10_000 if debugged else 50_000) // 16
    owner, lost = Owner(), list[int]()
    server = GrpcServer([Service(add_RelaysServicer_to_server, owner, "embereye.v1.Relays")], control=True)
    port = server.listen("127.0.0.1:0")
    await server.start()
    peer = PeerAddress("other", f"127.0.0.1:{port}")
    taken: dict[int, bytearray] = {}
    refused = 0

    async def produce(number: int, link: Relay) -> None:
        nonlocal refused
        dice, mine = random.Random(number), taken.setdefault(number, bytearray())
        for count in range(each):
            line = b"#Sensor:s-%d:ADC1=%d!\r\n" % (number, count)
            if link.send(line):
                mine += line
            else:
                refused += 1
                await asyncio.sleep(0.001)
            if dice.random() < 0.05:
                await asyncio.sleep(0)
        link.close()

    async with Tasks() as tasks:
        relays = Relays(lambda to: grpc.aio.insecure_channel(to.control), lost.append, tasks, limits)
        opened = {
            n: relays.open(peer, Origin(n, False, "10.0.0.1", ""), lambda _: None) for n in range(1, producers + 1)
        }
        await asyncio.wait_for(asyncio.gather(*(produce(number, link) for number, link in opened.items())), 100)
        await eventually(lambda: len(owner.closed) >= producers, 20)
        assert sorted(owner.closed) == list(opened)
        assert owner.lines == taken
        assert 0 < refused < producers * each / 2
        assert not lost
    await server.stop(0)


async def test_relays_of_an_unreachable_shard_are_freed() -> None:
    gc.disable()  # objects in a reference cycle may live for hours
    try:
        lost = list[int]()
        async with Tasks() as tasks:
            relays = Relays(lambda to: grpc.aio.insecure_channel(to.control), lost.append, tasks, Limits(dial=0.1))
            for number in range(3):
                opened = [relays.open(NOBODY, Origin(n, False, "10.0.0.1", ""), lambda _: None) for n in range(10)]
                assert all(relay.send(b"#Sensor:ADC1=1!") for relay in opened)
                await eventually(lambda number=number: len(lost) > number, 20)
                assert all(relay.closed for relay in opened)
                references = [weakref.ref(relay) for relay in opened]
                opened.clear()
                assert not any(relay() for relay in references)
        assert lost == [10] * 3
    finally:
        gc.enable()


async def test_no_device_counts_as_silent_because_its_lines_wait_for_others() -> None:
    owner = Owner()
    server = GrpcServer([Service(add_RelaysServicer_to_server, owner, "embereye.v1.Relays")], control=True)
    peer = PeerAddress("other", f"127.0.0.1:{server.listen('127.0.0.1:0')}")
    await server.start()
    async with Tasks() as tasks:
        relays = Relays(lambda to: grpc.aio.insecure_channel(to.control), lambda _: None, tasks, Limits(later=1e6))
        relays.configure(0.1)
        assert relays.open(peer, Origin(1, False, "10.0.0.1", ""), lambda _: None).send(b"#Sensor:ADC1=1!", later=True)
        await eventually(lambda: owner.lines[1] == b"#Sensor:ADC1=1!", 20)
    await server.stop(0)


async def test_lines_from_before_a_disconnect_count_although_the_session_was_paused() -> None:
    class Session:
        def __init__(self) -> None:
            self.transport: asyncio.Transport | None = None
            self.heard = b""

        def set_origin(self, _: Origin) -> None:
            pass

        def connection_made(self, transport: asyncio.Transport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            assert self.transport is not None
            self.heard += data
            self.transport.pause_reading()

        def connection_lost(self, _: Exception | None) -> None:
            self.transport = None

    session = Session()
    async with Tasks() as tasks:
        caller = _Caller(cast("Sessions", SimpleNamespace(protocol=lambda: session)), None, tasks)
        for number, closed in ((1, False), (2, False), (3, True)):
            caller.hand_lines(RelayedConnection(since_ns=1, lines=b"#Sensor:ADC1=%d!" % number, closed=closed))
    assert session.heard == b"#Sensor:ADC1=1!#Sensor:ADC1=2!#Sensor:ADC1=3!"
    assert session.transport is None
    assert not caller.connections


async def test_dropped_lines_of_a_relayed_connection_are_counted() -> None:
    shard = SensorShard()
    shard._sessions._open.most = 0
    async with Tasks() as tasks:
        caller = _Caller(shard._sessions, None, tasks)
        for _ in range(3):
            caller.hand_lines(RelayedConnection(since_ns=1, lines=b"#Sensors-01:ADC1=1!#Sensors-01:ADC1=2!"))
    assert (shard._sessions.relay_dropped, len(caller.connections)) == (6, 0)
