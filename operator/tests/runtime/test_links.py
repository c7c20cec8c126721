"""Calls to shards and the hub: of connections that others have followed, or that are none, none is kept."""

import asyncio
from collections.abc import Generator
from types import SimpleNamespace

import grpc
import pytest

from embereye_operator.errors import UnavailableError
from embereye_operator.runtime import links
from embereye_operator.runtime.links import Address, Hub, Shards


class Link:
    """Stands for a channel."""

    def __init__(self) -> None:
        self.closed: list[float | None] = []
        self.state = grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def get_state(self) -> grpc.ChannelConnectivity:
        return self.state

    async def close(self, grace: float | None) -> None:
        self.closed.append(grace)


class Failed:
    """Stands for a call that nobody answers."""

    def cancel(self) -> None:
        """Nothing is under way."""

    def __await__(self) -> Generator[None]:
        yield
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())


class Renewed:
    """Credentials whose certificate is another one each time."""

    @property
    def current(self) -> object:
        return object()


@pytest.mark.parametrize("end", ["a shard", "the hub"])
async def test_a_connection_is_closed_once_its_certificate_was_renewed(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    made: list[Link] = []

    def dial(*_: object) -> Link:
        made.append(Link())
        return made[-1]

    monkeypatch.setattr(links, "control_channel", dial)
    caller = Shards(Renewed()) if end == "a shard" else Hub("127.0.0.1:1", Renewed())  # type: ignore[arg-type]
    for _ in range(100):
        assert caller._channels.get("h:1", "hall-0.default") is made[-1]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(made) == 100
    assert all(one.closed == [links.CALL_SECONDS] for one in made[:-1])  # calls that had begun may end
    assert not caller._channels._over
    await caller.close()
    assert made[-1].closed == [None]


@pytest.mark.parametrize("connected", [True, False])
async def test_a_channel_that_does_not_connect_is_made_anew_for_it_asks_for_a_name_minutes_later(
    monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    made: list[Link] = []

    def dial(*_: object) -> Link:
        made.append(Link())
        if connected:
            made[-1].state = grpc.ChannelConnectivity.READY
        return made[-1]

    class Stub:
        def __init__(self, link: Link) -> None:
            """It takes any channel."""

        def Status(self, *_: object, **__: object) -> Failed:
            return Failed()

    monkeypatch.setattr(links, "control_channel", dial)
    monkeypatch.setattr(links, "ShardStub", Stub)
    monkeypatch.setattr(links, "CONNECTED_SECONDS", 0.05)
    shards, address = Shards(), Address("default", "hall-0", "h:1")
    for _ in range(3):
        assert await shards.status(address) is None
        assert await shards.status(address) is None  # it is given time to connect
        await asyncio.sleep(0.06)
    assert len(made) == (1 if connected else 3)
    await shards.close()
    assert [len(one.closed) for one in made] == [1] * len(made)


async def test_the_hub_is_called_without_a_name_first_and_by_name_where_that_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dialled: list[str] = []

    def dial(address: str, *_: object) -> Link:
        dialled.append(address)
        return Link()

    monkeypatch.setattr(links, "control_channel", dial)
    monkeypatch.setattr(links, "RosterStub", lambda _: SimpleNamespace(Retain=lambda *_, **__: Failed()))
    hub = Hub("hub.a.svc:50053")
    hub.set_address("10.0.0.7:50053")
    for _ in range(3):
        with pytest.raises(UnavailableError, match=r"hub hub\.a\.svc:50053 cannot"):
            await hub.retain([])
    assert dialled == ["10.0.0.7:50053", "hub.a.svc:50053"], "one channel to each"
    await hub.close()
