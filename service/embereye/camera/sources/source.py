"""What every pulled source offers, and the loop that keeps one running."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from embereye.camera.sources.declared import SourceError
from embereye.process.backoff import Backoff
from embereye.vision.observation import Box

logger = logging.getLogger(__name__)
Tell = Callable[[str], None]  # the source's state, for people


class Offer(Protocol):
    """Takes one compressed frame; `device.CameraDevice.offer` is the one that counts."""

    def __call__(self, data: bytes, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        """Take `data`, captured at `time_ns` (Unix epoch; 0: now); the boxes `lost` of it did not arrive."""
        ...


class Source(Protocol):
    """A source of frames that is pulled."""

    async def play(self, offer: Offer, tell: Tell) -> None:
        """Open the source once and offer its frames until it ends; SourceError tells why it could not go on."""
        ...


async def keep_playing(camera: str, source: Source, offer: Offer, tell: Tell, backoff: Backoff | None = None) -> None:
    """Play `source` again whenever it ends, after a growing wait, until cancelled."""
    backoff = backoff or Backoff(floor=0.2, cap=10.0)
    failing = ""

    def streamed(data: bytes, time_ns: int = 0, lost: tuple[Box, ...] = ()) -> None:
        nonlocal failing
        if failing or backoff.failures:
            logger.info("camera %s: streaming again", camera)
        failing = ""
        backoff.reset()
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
        failing = reason
        tell(f"failed: {reason}")
        await asyncio.sleep(backoff.next())
