"""Standby: a replica that does not own the database forwards every connection to the owner.

`stand_by` reads the owner from the database five times a second, in a thread. The `Forwarder` listens on the hub's
ports and connects each client to the same port of the owner. When there is no owner any more, `stand_by` returns, and
the first replica to lock the database becomes the owner. While the database cannot be read, forwarding continues to the
last known owner. Ports in `fallback`, served by this process, take the connections of a role while no owner answers.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from embereye.hub.database import StoreError
from embereye.hub.databases.owner import NewDatabaseError, Owner, OwnerWatch
from embereye.process.addresses import LOOPBACK
from embereye.process.admission import Admission, descriptors
from embereye.process.condition import Condition
from embereye.process.http.pages import all_interfaces
from embereye.process.tasks import beside, first_of

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2  # between two reads of the database's owner
PATIENCE_SECONDS = 5.0  # how long a read may take before it is interrupted and the database connected again
INTERRUPT_SECONDS = 0.5  # between two attempts to interrupt a read
RETURN_SECONDS = 0.5  # between two attempts to reach an owner that did not answer
DIAL_SECONDS = 2.0  # for connecting to the owner
CHUNK = 64 * 1024  # bytes copied at once
MAX_CONNECTIONS = 10_000  # forwarded at the same time


@dataclass(frozen=True)
class Listen:
    """An address to listen on, and the role of the owner's port to forward to."""

    host: str
    port: int
    role: str  # grpc, control, http or association


class Forwarder:
    """Forwards connections to the owner. If the owner does not answer, a connection is closed: its client redials.

    Connections beyond `most`, or beyond half of it from one address, are closed too: each uses two descriptors, and
    reading the database and answering probes needs some as well.
    """

    def __init__(self, most: int = 0, fallback: Mapping[str, int] | None = None) -> None:
        """`most` limits the connections; by default they may use half of the process's descriptors.

        `fallback` maps a role to a port of this process that serves it while the owner cannot be reached.
        """
        most = most or min(MAX_CONNECTIONS, descriptors() // 4)
        self._admission: Admission[asyncio.StreamWriter] = Admission(most)
        self._fallback = {} if fallback is None else fallback
        self.owner: Owner | None = None  # to which connections are forwarded; None if none is known
        self._open: set[asyncio.StreamWriter] = set()
        self._on_fallback: set[asyncio.StreamWriter] = set()  # connections that `fallback` serves

    def follow(self, owner: Owner | None) -> None:
        """Forward new connections to `owner`, and close those to another one."""
        if owner == self.owner:
            return
        self.owner = owner
        for writer in list(self._open):
            writer.transport.abort()

    async def return_to_owner(self) -> None:
        """Close connections on `fallback` as soon as the owner can be reached again; until cancelled."""
        while True:
            await asyncio.sleep(RETURN_SECONDS)
            if self.owner is None or not self._on_fallback:
                continue
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(DIAL_SECONDS):
                    _, probe = await asyncio.open_connection(self.owner.host, self.owner.ports["control"])
                probe.transport.abort()
                for writer in list(self._on_fallback):
                    writer.transport.abort()

    @contextlib.asynccontextmanager
    async def listening(self, listens: Sequence[Listen]) -> AsyncIterator[None]:
        """Accept connections at `listens` inside the block; OSError if an address cannot be used."""
        async with contextlib.AsyncExitStack() as stack:
            for listen in listens:
                forward = partial(self._forward, listen.role)
                server = await asyncio.start_server(forward, all_interfaces(listen.host), listen.port)
                stack.callback(server.close)
            try:
                yield
            finally:
                self.follow(None)

    async def _forward(self, role: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        owner, writers = self.owner, [writer]
        self._open.add(writer)
        try:
            if not self._admission.admit(writer, (writer.get_extra_info("peername") or ("",))[0]):
                return
            targets = [(owner.host, owner.ports[role])] if owner else []
            if role in self._fallback:
                targets.append((LOOPBACK, self._fallback[role]))
            for number, target in enumerate(targets):
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(DIAL_SECONDS / len(targets)):
                        answers, requests = await asyncio.open_connection(*target)
                    writers.append(requests)
                    self._open.add(requests)
                    if owner is None or number:
                        self._on_fallback.add(writer)
                    async with beside(_copy(reader, requests), name=f"to-owner-{role}"):
                        await _copy(answers, writer)
                    return
        finally:
            self._on_fallback.discard(writer)
            self._admission.forget(writer)
            for opened in writers:
                self._open.discard(opened)
                opened.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until the input ends or breaks, then end the output."""
    # uvloop raises RuntimeError for a connection that was aborted meanwhile.
    with contextlib.suppress(OSError, RuntimeError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def stand_by(
    address: Callable[[], str], listens: Sequence[Listen], forwarder: Forwarder, stop: asyncio.Event
) -> bool:
    """Forward connections until the database at `address` has no owner; False if `stop` was set first.

    While the database cannot be read, forwarding continues unchanged.
    """
    loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix="hub-owner")
    watch = OwnerWatch(address)
    failing = Condition(logger, begin=logging.ERROR, first_only=True)
    try:
        async with (
            forwarder.listening(listens),
            beside(forwarder.return_to_owner(), name="return-to-owner"),
        ):
            while not stop.is_set():
                reading = loop.run_in_executor(executor, watch.read_owner)
                await _wait_for_either(reading, stop)
                while not reading.done():  # a frozen server leaves its connections open and answers nothing
                    watch.interrupt()
                    await asyncio.wait({reading}, timeout=INTERRUPT_SECONDS)
                try:
                    owner = await reading
                except NewDatabaseError:
                    pass  # its owner is about to advertise itself
                except StoreError as error:
                    failing.fail(str(error), "standing by: the database's owner cannot be read (%s)", error)
                else:
                    failing.clear()
                    if owner is None:
                        logger.info("the hub's database has no owner: taking over")
                        return True
                    if owner != forwarder.owner:
                        logger.info("standing by for the hub at %s", owner.host)
                    forwarder.follow(owner)
                await first_of(stop.wait(), timeout=POLL_SECONDS)
        return False
    finally:
        watch.interrupt()
        await loop.run_in_executor(executor, watch.close)
        executor.shutdown(wait=False)


async def _wait_for_either(reading: "asyncio.Future[Owner | None]", stop: asyncio.Event) -> None:
    async with beside(stop.wait(), name="standby-stop") as stopping:
        either = set[asyncio.Future[Any]]({reading, stopping})
        await asyncio.wait(either, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
