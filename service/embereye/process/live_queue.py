"""Live pictures that wait for a slow reader: the newest picture, or the fragments of a video.

A fragment is useless without those before it, back to a key frame. If a reader falls behind, all that waits is
dropped, and the video continues at its next key frame.
"""

from collections import deque
from dataclasses import dataclass

from embereye.wire.jpeg.header import SOI
from embereye.wire.mp4 import is_start_of_video
from embereye.wire.thermal_picture import MARK

MAX_PICTURE = 2_000_000  # bytes of a picture or a fragment; gRPC takes messages of 4 MiB
MAX_WAITING = 4_000_000  # bytes that wait for one reader
MAX_GROUP = 3_000_000  # bytes of a video since its key frame that a new reader gets at once
LATE_SECONDS = 2.0  # a reader that does not take a fragment for so long continues at the next key frame


@dataclass(frozen=True, slots=True)
class LivePicture:
    """A JPEG, a thermal picture (`pack_thermal`), or one or more fragments of a video (`LiveMuxer`)."""

    data: bytes
    taken_ns: int  # nanoseconds since the Unix epoch
    encoding: str = ""  # of the camera: H264, H265, or empty for pictures

    @property
    def is_still(self) -> bool:
        """True if it needs no earlier one to be shown."""
        return self.data.startswith((SOI, MARK))


class LiveQueue:
    """The queue of one reader for one device."""

    def __init__(self) -> None:
        self.dropped = 0  # pictures and fragments
        self._waiting: deque[tuple[LivePicture, float]] = deque()  # with the time of arrival, seconds
        self._bytes = 0
        self._broken = True  # fragments are useless until the next key frame

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def offer(self, picture: LivePicture, now: float) -> None:
        """Add `picture`, which arrived at `now` (seconds of any clock), or drop it."""
        still = picture.is_still
        if still or self._bytes > MAX_WAITING or (self._waiting and now - self._waiting[0][1] > LATE_SECONDS):
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._bytes, self._broken = 0, True
        if not still and self._broken and not is_start_of_video(picture.data):
            self.dropped += 1
            return
        self._broken = still
        self._bytes += len(picture.data)
        self._waiting.append((picture, now))

    def skip_group(self) -> None:
        """Drop what arrives before the next key frame: a fragment is missing."""
        self.dropped += 1
        self._broken = True

    def take_oldest(self) -> LivePicture | None:
        """Remove and return the oldest picture or fragment that waits; None if there is none."""
        if not self._waiting:
            return None
        picture, _ = self._waiting.popleft()
        self._bytes -= len(picture.data)
        return picture
