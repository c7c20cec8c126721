"""Calls to shards and hubs: replaced and failed connections are closed, and a hub says if people are reached."""

import asyncio
import contextlib
from collections.abc import Generator
from types import SimpleNamespace

import grpc
import pytest
from harness.eventually import eventually

from embereye.process.grpc_server import PEOPLE, GrpcServer, Service
from embereye.v1.roster_pb2 import FleetRoster, HeardResponse, HeardShard, RosterResponse, TellScalingResponse
from embereye.v1.roster_pb2_grpc import RosterServicer, add_RosterServicer_to_server
from embereye.v1.shard_pb2 import AssignResponse, IdentifyResponse, InheritResponse, ShardStatus, StatusRequest
from embereye.v1.shard_pb2_grpc import ShardServicer, add_ShardServicer_to_server
from embereye_operator.errors import UnavailableError
from embereye_operator.runtime import links
from embereye_operator.runtime.links import Address, Heard, Hub, Shards


class Link:
    """A fake channel."""

    def __init__(self) -> None:
        self.closed: list[float | None] = []
        self.state = grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def get_state(self) -> grpc.ChannelConnectivity:
        return self.state

    async def close(self, grace: float | None) -> None:
        self.closed.append(grace)


class Failed:
    """A fake call without an answer."""

    def cancel(self) -> None:
        """Do nothing."""

    def __await__(self) -> Generator[None]:
        yield
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())


class Renewed:
    """Credentials with a new certificate at each call."""

    @property
    def current(self) -> object:
        return object()


@pytest.mark.parametrize("end", ["a shard", "the hub"])
async def test_a_connection_is_closed_after_its_certificate_was_renewed(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    created: list[Link] = []

    def dial(*_: object) -> Link:
        created.append(Link())
        return created[-1]

    monkeypatch.setattr(links, "control_channel", dial)
    caller = Shards(Renewed()) if end == "a shard" else Hub("127.0.0.1:1", Renewed())  # type: ignore[arg-type]
    for _ in range(100):
        assert caller.channel("h:1", "hall-0.default") is created[-1]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(created) == 100
    assert all(link.closed == [links.CALL_SECONDS] for link in created[:-1])  # calls that had begun may end
    assert not caller._over
    await caller.close()
    assert created[-1].closed == [None]


@pytest.mark.parametrize("connected", [True, False])
async def test_a_channel_that_cannot_connect_is_replaced_to_resolve_the_name_again(
    monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    created: list[Link] = []

    def dial(*_: object) -> Link:
        created.append(Link())
        if connected:
            created[-1].state = grpc.ChannelConnectivity.READY
        return created[-1]

    class Stub:
        def __init__(self, link: Link) -> None:
            """Accept any channel."""

        def Status(self, *_: object, **__: object) -> Failed:
            return Failed()

    monkeypatch.setattr(links, "control_channel", dial)
    monkeypatch.setattr(links, "ShardStub", Stub)
    monkeypatch.setattr(links, "CONNECTED_SECONDS", 0.05)
    shards, address = Shards(), Address("default", "hall-0", "h:1")
    for _ in range(3):
        assert await shards.status(address) is None
        assert await shards.status(address) is None  # it gets time to connect
        await asyncio.sleep(0.06)
    assert len(created) == (1 if connected else 3)
    await shards.close()
    assert [len(link.closed) for link in created] == [1] * len(created)


class Statuses(ShardServicer):
    """A shard that answers after `delay` seconds."""

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay

    async def Status(self, request: StatusRequest, context: object) -> ShardStatus:
        await asyncio.sleep(self._delay)
        return ShardStatus(epoch=7)

    async def Assign(self, request: object, context: object) -> AssignResponse:
        raise NotImplementedError

    async def Identify(self, request: object, context: object) -> IdentifyResponse:
        raise NotImplementedError

    async def Inherit(self, request: object, context: object) -> InheritResponse:
        raise NotImplementedError


async def test_a_shard_whose_connections_take_longer_than_a_channel_gets_is_reached() -> None:
    """On a busy machine, every channel was closed before it could connect, so that a shard looked dead for a minute."""
    server = GrpcServer([Service(add_ShardServicer_to_server, Statuses(), "embereye.v1.Shard")], control=True)
    port = server.listen("127.0.0.1:0")
    await server.start()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client only after more than its time."""
        await asyncio.sleep(2.5 * links.CONNECTED_SECONDS)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65_536):
                    target.write(data)
            target.close()

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    slow = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    shards = Shards()
    address = Address("default", "hall-0", f"127.0.0.1:{slow.sockets[0].getsockname()[1]}")
    answer = None
    for _ in range(20):
        if answer := await shards.status(address):
            break
    assert answer is not None
    assert answer.epoch == 7
    await shards.close()
    slow.close()
    await server.stop(0)


async def test_a_shard_that_answers_late_on_a_busy_machine_is_not_silent() -> None:
    """With one second for an answer, a starved cluster wrote every few minutes that a fleet was not covered."""
    server = GrpcServer([Service(add_ShardServicer_to_server, Statuses(1.2), "embereye.v1.Shard")], control=True)
    port = server.listen("127.0.0.1:0")
    await server.start()
    shards = Shards()
    answer = await shards.status(Address("default", "hall-0", f"127.0.0.1:{port}"))
    assert answer is not None
    assert answer.epoch == 7
    await shards.close()
    await server.stop(0)


async def test_the_hub_is_called_by_address_first_and_then_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled: list[str] = []

    def dial(address: str, *_: object) -> Link:
        dialled.append(address)
        return Link()

    monkeypatch.setattr(links, "control_channel", dial)
    monkeypatch.setattr(links, "RosterStub", lambda _: SimpleNamespace(Retain=lambda *_, **__: Failed()))
    hub = Hub("hub.a.svc:50053")
    hub.ip_address = "10.0.0.7:50053"
    for _ in range(3):
        with pytest.raises(UnavailableError, match=r"hub hub\.a\.svc:50053 cannot"):
            await hub.retain([])
    assert dialled == ["10.0.0.7:50053", "hub.a.svc:50053"], "one channel to each"
    await hub.close()


class Rosters(RosterServicer):
    """A hub's rosters."""

    async def Set(self, request: FleetRoster, context: object) -> RosterResponse:
        return RosterResponse()

    async def Retain(self, request: object, context: object) -> RosterResponse:
        raise NotImplementedError

    async def TellScaling(self, request: object, context: object) -> TellScalingResponse:
        raise NotImplementedError

    async def Heard(self, request: object, context: object) -> HeardResponse:
        return HeardResponse(
            shards=[HeardShard(fleet="site/sensors/hall", shard="hall-0", silent_ns=7)], listening_ns=9
        )


@pytest.mark.parametrize("answer", [True, False, None])
async def test_a_hub_says_with_a_roster_if_its_routes_reach_people(answer: bool | None) -> None:
    service = Service(add_RosterServicer_to_server, Rosters(), "embereye.v1.Roster")
    server = GrpcServer([service], control=True)
    if answer is not None:  # an older hub, or one without routes
        server.answer(PEOPLE, lambda: answer)
    port = server.listen("127.0.0.1:0")
    await server.start()
    hub = Hub(f"127.0.0.1:{port}")
    assert hub.is_reaching_people is None
    await hub.set(FleetRoster(fleet="site/sensors/hall"))
    assert hub.is_reaching_people is answer
    await hub.close()
    await server.stop(0)


@pytest.mark.parametrize("earlier", [False, True])
async def test_a_hub_says_when_it_heard_shards_and_an_earlier_one_nothing(earlier: bool) -> None:
    service = Service(add_RosterServicer_to_server, Rosters(), "embereye.v1.Roster")
    server = GrpcServer([] if earlier else [service], control=True)
    port = server.listen("127.0.0.1:0")
    await server.start()
    hub = Hub(f"127.0.0.1:{port}")
    assert await hub.heard() == (Heard() if earlier else Heard({("site/sensors/hall", "hall-0"): 7}, 9))
    await hub.close()
    await server.stop(0)


@pytest.mark.parametrize("end", ["a hub", "a shard"])
async def test_a_connection_without_an_answer_is_replaced_at_once(end: str) -> None:
    """The process at its other end may be frozen with its node, while the address already leads to another."""
    service = (
        Service(add_RosterServicer_to_server, Rosters(), "embereye.v1.Roster")
        if end == "a hub"
        else Service(add_ShardServicer_to_server, Statuses(), "embereye.v1.Shard")
    )
    server = GrpcServer([service], control=True)
    port = server.listen("127.0.0.1:0")
    await server.start()
    lost = asyncio.Event()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the connections from before the loss until then, and later ones for good."""
        is_affected = not lost.is_set()
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(65_536):
                    if not (is_affected and lost.is_set()):
                        target.write(data)
            target.close()

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    proxy = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    target = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    hub, shards = Hub(target), Shards()

    async def is_heard() -> bool:
        if end == "a hub":
            return bool((await hub.heard()).listening)
        return await shards.status(Address("default", "hall-0", target)) is not None

    await eventually(is_heard)
    lost.set()
    assert not await is_heard()
    assert any([await is_heard() for _ in range(4)])  # it took a minute, after which gRPC itself closes the connection
    await hub.close()
    await shards.close()
    proxy.close()
    await server.stop(0)
