"""A replica of the hub that does not own the database: it passes every connection on to the one that does.

When that one is gone, whichever replica notices first goes on from what is stored.
"""

import asyncio
import contextlib
import logging
import resource
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from embereye.hub.databases.interface import StoreError
from embereye.hub.databases.owner import Owner, OwnerWatch
from embereye.process.addresses import LOOPBACK, place_of
from embereye.process.http.pages import all_interfaces
from embereye.process.tasks import beside

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.2  # between two looks at who owns the database
PATIENCE_SECONDS = 5.0  # with a database that does not answer, before it is dialled anew
INTERRUPT_SECONDS = 0.5  # between two attempts to break off a look
RETURN_SECONDS = 0.5  # between two attempts to reach an owner that did not answer
DIAL_SECONDS = 2.0  # to reach the owner
CHUNK = 64 * 1024  # bytes passed on at once
MOST = 10_000  # connections that are passed on


@dataclass(frozen=True)
class Listen:
    """Where connections are taken, and which of the owner's ports they are for."""

    host: str
    port: int
    role: str  # of the port: grpc, control, http


class Forwarder:
    """Passes connections on to the owner. One that the owner does not answer is closed: its client dials again.

    So are those beyond what `most` allows, and beyond half of that from one address: each takes two descriptors, and
    what looks at the database, and answers probes, needs some as well.
    """

    def __init__(self, most: int = 0, absent: Mapping[str, int] | None = None) -> None:
        """`most` is the number of connections in all, by default as many as leave half of the descriptors.

        `absent` has the ports of this machine that serve a role while no owner can be reached.
        """
        self._most = most or min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._absent = {} if absent is None else absent
        self._owner: Owner | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._without_owner: set[asyncio.StreamWriter] = set()  # those that `absent` serves
        self._places: Counter[str] = Counter()  # that connections come from

    @property
    def owner(self) -> Owner | None:
        """Whom connections are passed on to; None: nobody is known."""
        return self._owner

    def follow(self, owner: Owner | None) -> None:
        """Pass connections on to `owner` from now on, and end those that went elsewhere."""
        if owner == self._owner:
            return
        self._owner = owner
        for writer in list(self._open):
            writer.transport.abort()

    async def return_to_owner(self) -> None:
        """End what `absent` serves as soon as the owner can be reached after all; until cancelled."""
        while True:
            await asyncio.sleep(RETURN_SECONDS)
            if self._owner is None or not self._without_owner:
                continue
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(DIAL_SECONDS):
                    _, probe = await asyncio.open_connection(self._owner.host, self._owner.ports["control"])
                probe.transport.abort()
                for writer in list(self._without_owner):
                    writer.transport.abort()

    @contextlib.asynccontextmanager
    async def listening(self, places: Sequence[Listen]) -> AsyncIterator[None]:
        """Take connections at `places` while this is entered; OSError where one cannot be had."""
        async with contextlib.AsyncExitStack() as stack:
            for place in places:
                take = partial(self._pass_on, place.role)
                server = await asyncio.start_server(take, all_interfaces(place.host), place.port)
                stack.callback(server.close)
            try:
                yield
            finally:
                self.follow(None)

    async def _pass_on(self, role: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        owner, ends = self._owner, [writer]
        place = place_of((writer.get_extra_info("peername") or ("",))[0])
        self._open.add(writer)
        self._places[place] += 1
        try:
            if self._places.total() > self._most or self._places[place] > self._most // 2:
                return
            ways = [(owner.host, owner.ports[role])] if owner else []
            if role in self._absent:
                ways.append((LOOPBACK, self._absent[role]))
            for number, way in enumerate(ways):
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(DIAL_SECONDS / len(ways)):
                        answers, requests = await asyncio.open_connection(*way)
                    ends.append(requests)
                    self._open.add(requests)
                    if owner is None or number:
                        self._without_owner.add(writer)
                    async with beside(_copy(reader, requests), name=f"to-owner-{role}"):
                        await _copy(answers, writer)
                    return
        finally:
            self._without_owner.discard(writer)
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]
            for end in ends:
                self._open.discard(end)
                end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until it ends or breaks; then `writer`'s other end is told so."""
    # uvloop says RuntimeError of a connection that was aborted meanwhile.
    with contextlib.suppress(OSError, RuntimeError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def stand_by(
    address: Callable[[], str], places: Sequence[Listen], forwarder: Forwarder, stop: asyncio.Event
) -> bool:
    """Pass connections on until nobody owns the database at `address`; False where `stop` was set first.

    While the database cannot be asked, everything goes on as it was.
    """
    loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix="hub-owner")
    watch = OwnerWatch(address)
    failing = ""
    try:
        async with (
            forwarder.listening(places),
            beside(forwarder.return_to_owner(), name="return-to-owner"),
        ):
            while not stop.is_set():
                looking = loop.run_in_executor(executor, watch.read_owner)
                await _first(looking, stop)
                while not looking.done():  # a server that is frozen keeps its connections, and answers nobody
                    watch.interrupt()
                    await asyncio.wait({looking}, timeout=INTERRUPT_SECONDS)
                try:
                    owner = await looking
                except StoreError as error:
                    if not failing:
                        logger.error("standing by, without knowing for whom: %s", error)  # noqa: TRY400
                    failing = str(error)
                else:
                    failing = ""
                    if owner is None:
                        logger.info("nobody owns the hub's database: taking over")
                        return True
                    if owner != forwarder.owner:
                        logger.info("standing by for the hub at %s", owner.host)
                    forwarder.follow(owner)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await stop.wait()
        return False
    finally:
        watch.interrupt()
        await loop.run_in_executor(executor, watch.close)
        executor.shutdown(wait=False)


async def _first(looking: "asyncio.Future[Owner | None]", stop: asyncio.Event) -> None:
    async with beside(stop.wait(), name="standby-stop") as stopping:
        either = set[asyncio.Future[Any]]({looking, stopping})
        await asyncio.wait(either, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
