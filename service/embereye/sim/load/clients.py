"""Pace the clients of a load test, connect them, and count their errors.

A client is a coroutine `speak` that opens one connection and sends until it breaks. `run_client` calls it again after
each error, which it counts by reason. All its connections share a `Pace`: packets are due at fixed times that no answer
delays, and latency counts from the due time. So a slow server cannot hide its delay by slowing its clients.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from embereye.process.http.bearer import Metadata, bearer
from embereye.process.reason import reason_of
from embereye.process.tasks import beside
from embereye.process.timing.backoff import Backoff
from embereye.process.tls.client import ClientTls, dial
from embereye.sim.load.figures import ClientFigures
from embereye.v1.frames_pb2 import PushResponse
from embereye.v1.ingest_pb2 import IngestResponse

Call = TypeVar("Call", bound="grpc.aio.StreamStreamCall[Any, Any]")
CONNECT_SECONDS = 5.0
STABLE_SECONDS = 1.0  # a connection that lasted this long resets the backoff of a client
STALLED_SECONDS = 10.0  # for one packet, before the connection is dropped


@dataclass(frozen=True)
class Load:
    """The load that clients send."""

    target: str  # host:port
    rate: float  # packets/s of each client
    packets: int = 0  # of each client; 0: until stopped
    token: str = ""  # sent with every stream; '': none
    tls: ClientTls | None = None  # None: no encryption
    seed: int = 0


@dataclass
class Pace:
    """A schedule of packets. A packet sent late does not delay the next ones: its lateness counts as latency."""

    rate: float  # packets/s
    packets: int  # 0: unlimited
    began: float  # monotonic seconds
    number: int = 0  # packets due so far

    async def next(self) -> float:
        """Wait until the next packet is due; return that time in monotonic seconds."""
        due = self.began + self.number / self.rate
        self.number += 1
        while (rest := due - time.monotonic()) > 0:  # timers have whole milliseconds, and end early
            await asyncio.sleep(rest)
        return due

    def skip_to(self, now: float) -> int:
        """Skip all packets due before the latest one at `now`; return their number."""
        latest = int((now - self.began) * self.rate) + 1
        skipped = max(0, (min(latest, self.packets) if self.packets else latest) - self.number)
        self.number += skipped
        return skipped

    @property
    def is_over(self) -> bool:
        """True if all packets were due."""
        return bool(self.packets) and self.number >= self.packets


@contextlib.contextmanager
def counting_errors(figure: ClientFigures) -> Iterator[None]:
    """Count an error of a connection by its reason."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        figure.errors[f"{error.code().name}: {error.details()}"] += 1
    except TimeoutError:
        figure.errors["timed out"] += 1
    except (OSError, EOFError, asyncio.InvalidStateError) as error:
        figure.errors[reason_of(error)] += 1


async def run_client(speak: Callable[[], Awaitable[None]], figure: ClientFigures, pace: Pace, seed: int) -> None:
    """Call `speak` until all packets were due; reconnect if the connection breaks, as devices do."""
    backoff = Backoff(floor=0.1, cap=5.0, jitter=random.Random(f"{seed}/{figure.id}/again"))
    figure.began = pace.began
    while not pace.is_over:
        began, before = time.monotonic(), figure.packets
        with counting_errors(figure):
            await speak()
        if figure.packets > before and time.monotonic() - began >= STABLE_SECONDS:
            backoff.reset()
        if not pace.is_over:
            await asyncio.sleep(backoff.next())


@contextlib.asynccontextmanager
async def open_stream(
    load: Load,
    figure: ClientFigures,
    open_call: Callable[[grpc.aio.Channel, Metadata], Call],
    receive: Callable[[Call], Coroutine[Any, Any, None]],
) -> AsyncIterator[tuple[Call, "asyncio.Task[None]"]]:
    """Open a client's stream for the block; yield it, and the task in which `receive` reads the shard's responses.

    If the shard has ended the stream by the end of the block, raise the reason.
    """
    link = dial(load.target, load.tls, (("grpc.use_local_subchannel_pool", 1),))
    call = open_call(link, bearer(load.token))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await call.wait_for_connection()
        figure.connections += 1
        async with beside(receive(call), name=f"acks-{figure.id}") as receiving:
            yield call, receiving
            if receiving.done():
                await receiving
    finally:
        call.cancel()
        await link.close()


def check_welcome(response: IngestResponse | PushResponse) -> None:
    """Raise ConnectionRefusedError or ConnectionResetError if `response` sends the client away."""
    if response.HasField("rejected"):
        raise ConnectionRefusedError(f"rejected: {response.rejected.reason}")
    if response.HasField("drain"):
        raise ConnectionResetError(f"redirected to {response.drain.target or 'the fleet'}: {response.drain.reason}")
