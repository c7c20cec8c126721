"""What a fault is, and the building that it is made on: processes of one machine, or a cluster."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from harness.records.diary import Diary
from harness.records.witness import Witness

HOLD_SECONDS = 4.0  # for which harm is done, where a fault says nothing else
PAIR_SECONDS = 0.5  # after one fault begins, its pair does


class Building(Protocol):
    """What is attacked, its devices, and who keeps books on both."""

    diary: Diary
    witness: Witness
    struck: float  # monotonic seconds: when the latest harm was done that is over at once

    async def well(self, limit: float) -> None:
        """Wait until the witness listens and every probed sensor is acknowledged; AssertionError after `limit`."""

    async def ignite(self) -> tuple[str, float]:
        """Let one more sensor burn; its zone, and when its first line was written, monotonic seconds."""

    def put_out(self) -> None:
        """Have all that burns say that it is quiet again; its alarm stays."""

    def gap(self, since: float, until: float) -> float:
        """The longest time that any probed sensor was without an acknowledgement, in seconds."""

    def moved(self, since: float, until: float) -> float:
        """The longest time that a probed sensor's way from one shard to another took, in seconds; 0: none moved."""

    def taken_back(self) -> int:
        """Acknowledged readings that were asked for again."""


B = TypeVar("B", bound=Building)


@dataclass(frozen=True)
class Fault(Generic[B]):
    """One kind of harm. Entering it does the harm, leaving it mends what does not mend itself."""

    name: str
    what: str
    gap: float  # seconds for which a sensor that is well may go without acknowledgement
    harm: Callable[[B], AbstractAsyncContextManager[None]]
    at_once: bool = False  # it is over as soon as it is done: what follows is recovery
    hold: float = HOLD_SECONDS
    alerts: frozenset[str] = frozenset()  # that it has to fire, without "EmberEye"
    besides: frozenset[str] = frozenset()  # that are true as well while it lasts, and may fire
    several_hubs: bool = False  # it is made where hubs are several, on PostgreSQL and NATS
    takes: str = ""  # what it has for itself: two faults that take the same cannot be made together
    planned: bool = False  # people do it in the course of their work: nobody should notice
    fires: int = 2  # lit during `hold`
    before: Callable[[B], Awaitable[None]] | None = None  # what is to be ready when it is made; no harm yet


@asynccontextmanager
async def _nothing(_: Building) -> AsyncIterator[None]:
    yield


# What the others are to be compared with: readings are some time apart, and alarms take a moment, where all is well.
NOTHING: Fault[Any] = Fault("nothing", "nothing is done, for comparison", 1.5, _nothing, hold=25.0, fires=50)


@asynccontextmanager
async def mended_after(seconds: float, mend: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """What was harmed is mended so much later, also where another fault lasts longer."""

    async def mend_later() -> None:
        await asyncio.sleep(seconds)
        await mend()

    mending = asyncio.get_running_loop().create_task(mend_later(), name="mend")
    try:
        yield
    finally:
        await mending


@asynccontextmanager
async def together(site: B, faults: Sequence[Fault[B]]) -> AsyncIterator[None]:
    """All of `faults`, one soon after the other, mended in the other order."""
    async with AsyncExitStack() as stack:
        for number, fault in enumerate(faults):
            if number:
                await asyncio.sleep(PAIR_SECONDS)
            site.diary.note("fault", f"{fault.name}: {fault.what}", "bad")
            site.struck = time.monotonic()
            await stack.enter_async_context(fault.harm(site))
        yield
    site.diary.note("fault", f"{' and '.join(fault.name for fault in faults)}: mended", "good")
