"""A fault, and the building under attack: processes of one machine, or a cluster.

A `Fault` has a context manager that does the harm and repairs it, and its expected effects: the longest gap, the alerts
that must or may fire. A `Building` is what the matrix needs of a site. `together` enters several faults shortly one
after the other, and repairs them in reverse order. Two faults that take the same resource are never paired.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from harness.records.diary import Diary
from harness.records.witness import Witness

HOLD_SECONDS = 4.0  # default duration of a fault
PAIR_SECONDS = 0.5  # delay between the starts of two paired faults


class Building(Protocol):
    """The building under attack, its devices, and the probers and witness that keep books on both."""

    diary: Diary
    witness: Witness
    struck: float  # monotonic seconds of the latest instantaneous harm

    async def well(self, limit: float) -> None:
        """Wait until the witness listens and every probed sensor is acknowledged. AssertionError after `limit`."""

    async def ignite(self) -> tuple[str, float]:
        """Set one more sensor on fire. Returns its zone and the monotonic seconds of its first line."""

    async def notified(self, zone: str, limit: float) -> None:
        """Wait until a person has the alarm of `zone`, if the hub notifies people. AssertionError after `limit`."""

    def put_out(self) -> None:
        """Put all fires out. Their alarms stay."""

    def gap(self, since: float, until: float) -> float:
        """The longest time, in seconds, that any probed sensor had no acknowledgement."""

    def moved(self, since: float, until: float) -> float:
        """The longest move of a probed sensor between shards, in seconds; 0 if none moved."""

    def taken_back(self) -> int:
        """The number of acknowledged readings that a shard requested again."""


B = TypeVar("B", bound=Building)


@dataclass(frozen=True)
class Fault(Generic[B]):
    """A kind of harm. Entering its context does the harm; leaving it repairs what does not recover alone."""

    name: str
    summary: str
    gap: float  # seconds that a working sensor may go without acknowledgement
    harm: Callable[[B], AbstractAsyncContextManager[None]]
    at_once: bool = False  # instantaneous: recovery starts immediately
    duration: float = HOLD_SECONDS  # seconds
    alerts: frozenset[str] = frozenset()  # alerts that must fire, without the prefix "EmberEye"
    besides: frozenset[str] = frozenset()  # further alerts that may fire, because they are true meanwhile
    several_hubs: bool = False  # needs several hubs on PostgreSQL and NATS
    takes: str = ""  # a resource it uses alone; two faults with the same one cannot be paired
    planned: bool = False  # routine work of people, which must go unnoticed
    fires: int = 2  # fires lit during `duration`
    before: Callable[[B], Awaitable[None]] | None = None  # preparation, without harm
    writes: float = 3.0  # of the operators for each fleet: the mean that a soak in a cluster allows


@asynccontextmanager
async def _nothing(_: Building) -> AsyncIterator[None]:
    yield


# The baseline for all others: even without a fault, readings have intervals and alarms take a moment.
NOTHING: Fault[Any] = Fault("nothing", "no fault, for comparison", 1.5, _nothing, duration=25.0, fires=50)


@asynccontextmanager
async def mended_after(seconds: float, mend: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Repair the harm after `seconds`, even if a paired fault lasts longer."""

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
    """Make all `faults`, shortly one after the other, and repair them in reverse order."""
    async with AsyncExitStack() as stack:
        for number, fault in enumerate(faults):
            if number:
                await asyncio.sleep(PAIR_SECONDS)
            site.diary.note("fault", f"{fault.name}: {fault.summary}", "bad")
            site.struck = time.monotonic()
            await stack.enter_async_context(fault.harm(site))
        yield
    site.diary.note("fault", f"{' and '.join(fault.name for fault in faults)}: repaired", "good")
