"""What every pulled source offers, and the loop that keeps one running."""

import asyncio
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Protocol

from embereye.camera.sources.declared import SourceError, conceal
from embereye.process.timing.backoff import Backoff
from embereye.units import Box
from embereye.wire.rtsp.messages import printable
from embereye.wire.video.access_unit import AccessUnit

logger = logging.getLogger(__name__)
SetState = Callable[[str], None]  # is called with the source's state, for people, whenever it changes
SETTLED_SECONDS = 5.0  # of streaming; a source that ends sooner counts as one that could not be opened
BURST_SECONDS = 0.005  # of the event loop that one read may take; a picture takes a fiftieth of that
MAX_REASON = 400  # characters of why a source ended
PAUSE_FACTOR = 4.0  # times what a longer read took: a flood gets a fifth of the event loop at most


class Offer(Protocol):
    """Accepts one compressed frame; mostly `CameraDevice.offer_frame`."""

    def __call__(self, data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = (), /) -> None:
        """Accept `data`, captured at `time_ns` (Unix epoch; 0: now); the boxes `lost` of it did not arrive.

        Access units come in decoding order, with the times of their presentation.
        """
        ...


def read_pause(spent: float) -> float:
    """Seconds to leave a source unread after it has kept the event loop busy for `spent` seconds.

    A sender that floods would otherwise have the whole loop to itself.
    """
    return PAUSE_FACTOR * spent if spent > BURST_SECONDS else 0.0


def refusal_reason(error: OSError) -> str:
    """Why a connection cannot be had, in words. Name resolution fails with negative numbers of its own."""
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return reason or str(error) or "it breaks the connection off"


class Source(Protocol):
    """A source of frames that a shard pulls."""

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Open the source once and offer its frames until it ends; SourceError says why it could not go on.

        Cancelling it closes everything that it opened.
        """
        ...


async def keep_playing(
    camera: str, source: Source, offer: Offer, set_state: SetState, backoff: Backoff | None = None,
    *, settled: float = SETTLED_SECONDS, declared: Iterable[str] = (),
) -> None:  # fmt: skip
    """Play `source` again whenever it ends, after a wait, until cancelled.

    The wait grows, and starts over once the source has streamed for `settled` seconds: a player that crashes at its
    second frame must not be restarted at once, a second of CPU each time. What is told of a failure quotes nothing of
    the addresses `declared` but host and port.
    """
    addresses = [address for address in declared if "://" in address]

    def without_secrets(text: str) -> str:
        for address in addresses:
            text = conceal(text, address)
        return text

    def told(reason: str) -> str:
        return printable(without_secrets(reason), MAX_REASON)  # a camera may have had a say in it

    backoff = backoff or Backoff(floor=0.2, cap=10.0)
    failing, since = "", 0.0

    def offer_streamed(data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = (), /) -> None:
        nonlocal failing, since
        since = since or time.monotonic()
        if failing:
            logger.info("camera %s: streaming again", camera)
        failing = ""
        offer(data, time_ns, lost)

    while True:
        set_state("connecting" if not failing else f"connecting; before that: {failing}")
        try:
            await source.play(offer_streamed, set_state)
            reason = "the source ended"
        except SourceError as error:
            reason = told(str(error))
        except Exception as error:  # a source that explodes must not take the shard with it
            said = without_secrets("".join(traceback.format_exception(error)))
            logger.error("camera %s: its source failed\n%s", camera, said)  # noqa: TRY400 -- which would quote it all
            reason = told(f"{type(error).__name__}: {error}")
        if reason != failing:
            logger.warning("camera %s: %s; trying again", camera, reason)
        if since and time.monotonic() - since >= settled:
            backoff.reset()
        failing, since = reason, 0.0
        set_state(f"failed: {reason}")
        await asyncio.sleep(backoff.next())
