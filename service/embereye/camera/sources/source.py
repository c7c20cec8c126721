"""What every pulled source offers, and the loop that keeps one running."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from embereye.camera.sources.declared import SourceError
from embereye.process.backoff import Backoff
from embereye.units import Box

logger = logging.getLogger(__name__)
Tell = Callable[[str], None]  # the source's state, for people
SETTLED_SECONDS = 5.0  # a source that streamed for less counts as one that could not be opened
BURST_SECONDS = 0.005  # of the event loop; a picture takes a fiftieth of that
RESTS = 4.0  # times what it took: who floods has a fifth of the event loop at most


class Offer(Protocol):
    """Takes one compressed frame; `device.CameraDevice.offer` is the one that counts."""

    def __call__(self, data: bytes, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        """Take `data`, captured at `time_ns` (Unix epoch; 0: now); the boxes `lost` of it did not arrive."""
        ...


def rest(spent: float) -> float:
    """Seconds that a source is left unread after it has kept the event loop busy for `spent` seconds.

    A camera that sends more than a camera can would otherwise have the whole loop, and others none of it.
    """
    return RESTS * spent if spent > BURST_SECONDS else 0.0


class Source(Protocol):
    """A source of frames that is pulled."""

    async def play(self, offer: Offer, tell: Tell) -> None:
        """Open the source once and offer its frames until it ends; SourceError tells why it could not go on."""
        ...


async def keep_playing(
    camera: str, source: Source, offer: Offer, tell: Tell, backoff: Backoff | None = None,
    *, settled: float = SETTLED_SECONDS,
) -> None:  # fmt: skip
    """Play `source` again whenever it ends, after a wait until cancelled; the wait grows unless it streamed for long.

    A player that crashes at its second frame would otherwise be started without a pause, a second of CPU each time.
    """
    backoff = backoff or Backoff(floor=0.2, cap=10.0)
    failing, since = "", 0.0

    def streamed(data: bytes, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        nonlocal failing, since
        since = since or time.monotonic()
        if failing:
            logger.info("camera %s: streaming again", camera)
        failing = ""
        offer(data, time_ns, lost)

    while True:
        tell("connecting" if not failing else f"connecting; before that: {failing}")
        try:
            await source.play(streamed, tell)
            reason = "the source ended"
        except SourceError as error:
            reason = str(error)
        except Exception as error:  # a source that explodes must not take the shard with it
            logger.exception("camera %s: its source failed", camera)
            reason = f"{type(error).__name__}: {error}"
        if reason != failing:
            logger.warning("camera %s: %s; trying again", camera, reason)
        if since and time.monotonic() - since >= settled:
            backoff.reset()
        failing, since = reason, 0.0
        tell(f"failed: {reason}")
        await asyncio.sleep(backoff.next())
