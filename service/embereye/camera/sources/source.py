"""The interface of pulled sources, and the loop that keeps one running.

A source has one method: `play` opens it once and offers frames until it ends. `keep_playing` calls it again and again,
with growing pauses, until the task is cancelled. After refused credentials it waits for minutes. It alone retries,
logs a failure once, and removes passwords from the reason. Sources run on the event loop; `read_pause` limits the time
that one of them may take.
"""

import asyncio
import contextlib
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from embereye.camera.sources.credentials import Credentials
from embereye.camera.sources.declared import DeclaredSource, RefusedCredentialsError, SourceError, conceal
from embereye.camera.sources.logins import Login, Logins, in_words
from embereye.camera.sources.poller import SocketPoller
from embereye.process.condition import Condition
from embereye.process.timing.backoff import Backoff
from embereye.units import Box
from embereye.wire.rtsp.messages import printable
from embereye.wire.video.access_unit import AccessUnit

logger = logging.getLogger(__name__)
SetState = Callable[[str], None]  # receives the source's state for people, whenever it changes
DIAL_SECONDS = 5.0  # for connecting, and for each answer
STABLE_SECONDS = 5.0  # of streaming; a source that ends sooner counts as not opened
BURST_SECONDS = 0.005  # of the event loop for one read; a picture takes a fiftieth of that
MAX_REASON = 400  # characters of the reason why a source ended
REFUSED = "the camera refused the user name or password"
PAUSE_FACTOR = 4.0  # times the duration of a long read: a flood gets at most a fifth of the event loop


class Offer(Protocol):
    """A function that accepts one compressed frame; mostly `CameraDevice.offer_frame`."""

    def __call__(self, data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = (), /) -> None:
        """Accept `data`, captured at `time_ns` (Unix epoch; 0: now). The boxes `lost` did not arrive.

        Access units come in decoding order, with their presentation times.
        """


def read_pause(spent: float) -> float:
    """Seconds to leave a source unread after it occupied the event loop for `spent` seconds.

    Without the pause, a flooding sender would block the loop.
    """
    return PAUSE_FACTOR * spent if spent > BURST_SECONDS else 0.0


def refusal_reason(error: OSError) -> str:
    """Describe in words why a connection failed. Name resolution uses separate, negative error numbers."""
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return reason or str(error) or "the connection was closed"


class Source(Protocol):
    """A source of frames that a shard pulls."""

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Open the source once and offer its frames until it ends. Raises SourceError with the reason if it fails.

        Cancelling it closes everything that it opened.
        """


@dataclass(eq=False)
class NetworkSource:
    """A camera that the shard dials. Subclasses are a `Source`."""

    declared: DeclaredSource
    credentials: Credentials
    dials: asyncio.Semaphore  # limits simultaneous connection attempts
    poller: SocketPoller  # of the sockets of all sources
    _: KW_ONLY
    dial: float = DIAL_SECONDS


async def keep_playing(
    camera: str, source: Source, offer: Offer, set_state: SetState, backoff: Backoff | None = None,
    *, stable_seconds: float = STABLE_SECONDS, declared: Iterable[str] = (), login: Login | None = None,
) -> None:  # fmt: skip
    """Play `source` again whenever it ends, after a wait, until cancelled.

    The wait grows, and starts over once the source has streamed for `stable_seconds`. A player that crashes at its
    second frame must not restart at once, because each start costs a second of CPU time. `login` delays the next dial
    after the camera refused its credentials. Messages about failures show only host and port of the `declared`
    addresses.
    """
    backoff = backoff or Backoff(floor=0.2, cap=10.0)
    failing, since = Condition(logger, end=logging.INFO), 0.0
    login = login or Login(Logins(), "", lambda: ("", ""))
    addresses = [address for address in declared if "://" in address]

    def offer_streamed(data: bytes | AccessUnit, time_ns: int = 0, lost: tuple[Box, ...] = (), /) -> None:
        nonlocal since
        if not since:
            since = time.monotonic()
            login.accept()
        failing.clear("camera %s: streaming again", camera)
        offer(data, time_ns, lost)

    def show_wait(seconds: float) -> None:
        set_state(f"failed: {failing.why or REFUSED}; next try in {in_words(seconds)}")

    with contextlib.closing(login):
        while True:
            await login.wait(show_wait)
            set_state("connecting" if not failing else f"connecting; before that: {failing.why}")
            reason, refused = await _play_once(camera, source, offer_streamed, set_state, addresses)
            pause = login.refuse() if refused else 0.0
            reason = f"{REFUSED} ({reason})" if pause else reason
            failing.fail(reason, "camera %s: %s; trying again", camera, reason)
            if since and time.monotonic() - since >= stable_seconds:
                backoff.reset()
            since = 0.0
            if pause:
                show_wait(pause)
                continue
            login.end()
            set_state(f"failed: {reason}")
            await asyncio.sleep(backoff.next())


async def _play_once(
    camera: str, source: Source, offer: Offer, set_state: SetState, addresses: Iterable[str]
) -> tuple[str, bool]:
    """Play `source` until it ends. Return the reason, without secrets of `addresses`; True if it refused the log-in."""

    def without_secrets(text: str) -> str:
        for address in addresses:
            text = conceal(text, address)
        return text

    def shown_reason(reason: str) -> str:
        return printable(without_secrets(reason), MAX_REASON)  # the camera may have supplied a part of it

    try:
        await source.play(offer, set_state)
    except SourceError as error:
        return shown_reason(str(error)), isinstance(error, RefusedCredentialsError)
    except Exception as error:  # an unexpected error of a source must not end the shard
        trace = without_secrets("".join(traceback.format_exception(error)))
        logger.error("camera %s: its source failed\n%s", camera, trace)  # noqa: TRY400 -- the traceback could contain a password
        return shown_reason(f"{type(error).__name__}: {error}"), False
    return "the source ended", False
