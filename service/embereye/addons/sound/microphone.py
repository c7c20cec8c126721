"""Listen to one sound by RTSP or HTTP: decode its audio track, and look for alarms in it.

FFmpeg's calls block, so each microphone has a thread. It also runs the search, which takes about 1 % of a core, and
hands one report a second to the event loop.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import av
import av.error
import numpy as np
from numpy.typing import NDArray

from embereye.addons.sound.pattern import MISSED, RATE, TEMPLATES, AlarmSounds, Pattern, describe
from embereye.process.login_folder import Pair, choose, read_pairs
from embereye.process.timing.backoff import Backoff
from embereye.wire.readings.quantity import Reading

logger = logging.getLogger(__name__)
OPEN_SECONDS, READ_SECONDS = 10.0, 5.0  # for the stream to begin, and between two packets
REFUSED_SECONDS = 120.0  # after a refused login, unless the Secret changes: cameras lock out a user who errs often
MAX_PAUSE_SECONDS = 60.0  # between two attempts to connect
BLOCK = RATE  # samples between two reports
SILENT = 10 ** (-90 / 20)  # peak of a microphone that is switched off
SILENT_SECONDS = 60.0
# A new connection knows nothing of an alarm before it has listened for so long.
LEARN_SECONDS = MISSED * max(template.period for template in TEMPLATES)
NO_AUDIO = "the stream has no audio track: switch the microphone on in the camera"


class SoundError(Exception):
    """The sound cannot be heard; the text says why."""


class RefusedError(SoundError):
    """The camera refuses the login."""


@dataclass(frozen=True)
class Place:
    """The URL of a sound, and the folder with its login, which is read for each connection; None: no login."""

    url: str
    folder: Path | None = None

    @property
    def shown(self) -> str:
        """The URL without path and query, which may contain a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def login(self, refused: Pair | None) -> Pair | None:
        """User and password, of two pairs the one that was not `refused`; None: no login. SoundError without a file."""
        if self.folder is None:
            return None
        try:
            return choose(read_pairs(self.folder), refused)
        except OSError:
            why = f'Secret "{self.folder.name}" has no username and password, or is not mounted'
            raise SoundError(why) from None

    def full(self, login: Pair | None) -> str:
        """The URL with `login`."""
        if login is None:
            return self.url
        user, password = (quote(word, safe="") for word in login)
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc}"))


class Microphone:
    """Listens in a thread from `start` to `stop`.

    `report` gets readings each second, `fail` the reason why nothing can be heard; both are called in that thread.
    """

    def __init__(
        self, place: Place, report: Callable[[tuple[Reading, ...]], None], fail: Callable[[str], None]
    ) -> None:
        self._place = place
        self._report = report
        self._fail = fail
        self._stopped = threading.Event()
        self._refused: Pair | None = None  # the login that the camera refused last
        self._thread = threading.Thread(target=self._run, name="microphone", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Listen no more. The thread ends within `READ_SECONDS`, or `OPEN_SECONDS` while it connects."""
        self._stopped.set()

    def _run(self) -> None:
        backoff = Backoff(floor=0.5, cap=MAX_PAUSE_SECONDS)
        while not self._stopped.is_set():
            began, refused = time.monotonic(), False
            try:
                self._listen()
                why = "the stream has ended"
            except SoundError as error:
                why, refused = str(error), isinstance(error, RefusedError)
            except (av.error.FFmpegError, OSError, ValueError) as error:
                why = getattr(error, "strerror", "") or type(error).__name__
            if self._stopped.is_set():
                return
            self._fail(f"sound of {self._place.shown}: {why}")
            if time.monotonic() - began > MAX_PAUSE_SECONDS:
                backoff.reset()
            self._stopped.wait(backoff.next())
            if refused:
                self._await_other_login()

    def _await_other_login(self) -> None:
        """Wait until the Secret has a login that was not refused, at most `REFUSED_SECONDS`."""
        end = time.monotonic() + REFUSED_SECONDS
        while time.monotonic() < end and not self._stopped.wait(1.0):
            with contextlib.suppress(SoundError):
                if self._place.login(self._refused) != self._refused:
                    return

    def _listen(self) -> None:
        """Listen until the stream ends, or `stop` is called."""
        options = {}
        if self._place.url.startswith("rtsp"):
            options = {"rtsp_transport": "tcp", "allowed_media_types": "audio"}
        login = self._place.login(self._refused)
        try:
            opened = av.open(self._place.full(login), options=options, timeout=(OPEN_SECONDS, READ_SECONDS))
        except av.error.HTTPUnauthorizedError:
            self._refused = login
            raise RefusedError("the camera refused the user name or password") from None
        with opened as container:
            if not container.streams.audio:
                raise SoundError(NO_AUDIO)
            hearing = Hearing()
            resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
            waiting: list[NDArray[np.float32]] = []
            for frame in container.decode(container.streams.audio[0]):
                if self._stopped.is_set():
                    return
                waiting += [part.to_ndarray().reshape(-1).astype(np.float32) for part in resampler.resample(frame)]
                if sum(map(len, waiting)) >= BLOCK:
                    samples = np.concatenate(waiting)
                    waiting = []
                    self._report(hearing.listen(samples))


class Hearing:
    """The search for alarms in one connection's sound."""

    def __init__(self) -> None:
        self._sounds = AlarmSounds()
        self._silent = 0.0  # seconds

    def listen(self, samples: NDArray[np.float32]) -> tuple[Reading, ...]:
        """Search more samples; return the state of each pattern. SoundError if there has been silence for too long."""
        loud = bool(np.abs(samples).max(initial=0.0) > SILENT)
        self._silent = 0.0 if loud else self._silent + len(samples) / RATE
        if self._silent > SILENT_SECONDS:
            raise SoundError(f"the audio track has been silent for {SILENT_SECONDS:.0f} s: is the microphone on?")
        self._sounds.feed(samples)
        return tuple(reading for template in TEMPLATES if (reading := self._reading(template.pattern)))

    def _reading(self, pattern: Pattern) -> Reading | None:
        """The state of `pattern`; None while it is unknown."""
        if alarm := self._sounds.alarms.get(pattern):
            return Reading(pattern, 1.0, note=describe(alarm))
        return Reading(pattern, 0.0) if self._sounds.seconds > LEARN_SECONDS else None


def quiet_library() -> None:
    """Keep FFmpeg's own log records out of the shard's log: failures are logged here, with the device."""
    with contextlib.suppress(AttributeError):
        av.logging.set_level(av.logging.PANIC)
