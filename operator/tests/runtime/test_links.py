"""Calls to shards and the hub: of connections that others have followed none is kept."""

import asyncio

import pytest

from embereye_operator.runtime import links
from embereye_operator.runtime.links import Address, Hub, Shards


class Link:
    """Stands for a channel."""

    def __init__(self) -> None:
        self.closed: list[float | None] = []

    async def close(self, grace: float | None) -> None:
        self.closed.append(grace)


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
        link = caller._channel(Address("default", "hall-0", "h:1")) if isinstance(caller, Shards) else caller._link()
        assert link is made[-1]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(made) == 100
    assert all(one.closed == [links.CALL_SECONDS] for one in made[:-1])  # calls that had begun may end
    assert not caller._channels._over
    await caller.close()
    assert made[-1].closed == [None]
