"""What clients of a load test have in common: when they send, and how what goes wrong is counted."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc

from embereye.process.http.bearer import Metadata, bearer
from embereye.process.tasks import beside
from embereye.process.timing.backoff import Backoff
from embereye.process.tls.client import ClientTls, dial
from embereye.sim.load.figures import ClientFigures
from embereye.v1.frames_pb2 import PushResponse
from embereye.v1.ingest_pb2 import IngestResponse

Call = TypeVar("Call", bound="grpc.aio.StreamStreamCall[Any, Any]")
CONNECT_SECONDS = 5.0
HELD_SECONDS = 1.0  # after which a connection was a good one: those who are turned away dial ever less often
STALLED_SECONDS = 10.0  # for one packet, after which the connection is given up


class StreamLoad(Protocol):
    """What of a load says where to, and who sends."""

    @property
    def target(self) -> str:
        """A host:port."""
        ...

    @property
    def token(self) -> str:
        """That every stream shows; '': none."""
        ...

    @property
    def tls(self) -> ClientTls | None:
        """None: it is not encrypted."""
        ...


@dataclass
class Pace:
    """When packets are due. One that is sent late does not put off those after it: its lateness counts as latency."""

    rate: float  # packets/s
    packets: int  # 0: without end
    began: float  # monotonic seconds
    number: int = 0  # packets that were due so far

    async def next(self) -> float:
        """Wait until the next packet is due; monotonic seconds of that moment."""
        due = self.began + self.number / self.rate
        self.number += 1
        while (rest := due - time.monotonic()) > 0:  # timers are of whole milliseconds, and end early
            await asyncio.sleep(rest)
        return due

    def skip_to(self, now: float) -> int:
        """Leave out all packets that are due before the latest one by `now`; how many."""
        latest = int((now - self.began) * self.rate) + 1
        skipped = max(0, (min(latest, self.packets) if self.packets else latest) - self.number)
        self.number += skipped
        return skipped

    @property
    def over(self) -> bool:
        """Whether all packets have been due."""
        return bool(self.packets) and self.number >= self.packets


@contextlib.contextmanager
def counted(figure: ClientFigures) -> Iterator[None]:
    """Count what goes wrong on a connection as one error, by its reason."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        figure.errors[f"{error.code().name}: {error.details()}"] += 1
    except TimeoutError:
        figure.errors["timed out"] += 1
    except (OSError, EOFError, asyncio.InvalidStateError) as error:
        figure.errors[str(error) or type(error).__name__] += 1


async def keep_speaking(speak: Callable[[], Awaitable[None]], figure: ClientFigures, pace: Pace, seed: int) -> None:
    """Speak until all packets have been due; dial again where the connection breaks, as devices do."""
    backoff = Backoff(floor=0.1, cap=5.0, jitter=random.Random(f"{seed}/{figure.id}/again"))
    figure.began = pace.began
    while not pace.over:
        began, before = time.monotonic(), figure.packets
        with counted(figure):
            await speak()
        if figure.packets > before and time.monotonic() - began >= HELD_SECONDS:
            backoff.reset()
        if not pace.over:
            await asyncio.sleep(backoff.next())


@contextlib.asynccontextmanager
async def conversing(
    load: StreamLoad,
    figure: ClientFigures,
    open_call: Callable[[grpc.aio.Channel, Metadata], Call],
    receive: Callable[[Call], Coroutine[Any, Any, None]],
) -> AsyncIterator[tuple[Call, "asyncio.Task[None]"]]:
    """A client's stream while the block lasts, and the task in which `receive` hears what the shard says of it.

    At the end of the block, where the shard has ended it, raises why.
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
    """ConnectionRefusedError, or ConnectionResetError, where the shard sends the client away with `response`."""
    if response.HasField("rejected"):
        raise ConnectionRefusedError(f"rejected: {response.rejected.reason}")
    if response.HasField("drain"):
        raise ConnectionResetError(f"sent on to {response.drain.target or 'the fleet'}: {response.drain.reason}")
