"""Player of one video: writes JPEG frames to standard output, each after its length. The process may be killed.

A file plays at its frame rate, over and over, like a camera. A local camera plays as it sends, until it ends. Run it as
`python -m embereye.camera.sources.video.player PATH`. It exits with 2 and a reason on standard error on failure.
"""

import os
import struct
import sys
import time
from collections.abc import Iterator

from embereye.camera.sources.declared import DEVICE

LENGTH = struct.Struct(">I")
QUALITY = 90  # JPEG quality; above it only the size grows
OPEN_MS = READ_MS = 5_000  # time limits for FFmpeg, whose default is 30 s
RATES = (0.1, 240.0)  # plausible frames/s of a file; others are played at RATE
RATE = 15.0  # frames/s
LONGEST_GAP = 10.0  # plausible seconds between two frames of a container
PAUSE = 1 / RATE  # seconds between a file's last frame and its first one


def frames(path: str) -> Iterator[tuple[bytes, float]]:
    """Yield the frames of `path` as JPEG, with seconds after the first: the container's times if plausible.

    Raises ValueError if a frame cannot be coded.
    """
    import cv2

    options = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, READ_MS]
    video = cv2.VideoCapture(path, cv2.CAP_FFMPEG, options)
    rate = video.get(cv2.CAP_PROP_FPS)
    period = 1.0 / (rate if RATES[0] <= rate <= RATES[1] else RATE)
    seconds, origin = -period, None
    try:
        while True:
            whole, picture = video.read()
            if not whole:
                return
            coded, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            if not coded:
                raise ValueError("a frame cannot be coded as JPEG")
            stated = video.get(cv2.CAP_PROP_POS_MSEC) / 1000
            origin = stated if origin is None else origin
            stated -= origin
            seconds = stated if 0 < stated - seconds < LONGEST_GAP else seconds + period
            yield data.tobytes(), seconds
    finally:
        video.release()


def play_device(path: str) -> str:
    """Play the camera at `path` as it sends. Returns why it ended."""
    from embereye.camera.sources.video import device

    try:
        for data in device.play_device(path, QUALITY):
            sys.stdout.buffer.write(LENGTH.pack(len(data)) + data)
            sys.stdout.buffer.flush()
    except device.DeviceError as error:
        return str(error)
    return "it sends no more pictures"


def play(path: str) -> str:
    """Play `path` until standard output is closed. Returns why it failed."""
    if DEVICE.fullmatch(path):
        return play_device(path)
    os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"] = ""
    import cv2

    cv2.setNumThreads(1)
    out = sys.stdout.buffer
    due = time.monotonic()
    while True:
        before = None
        try:
            for data, seconds in frames(path):
                # Send late frames at once, but make up for at most a second.
                due = max(due + (PAUSE if before is None else seconds - before), time.monotonic() - 1.0)
                before = seconds
                time.sleep(max(0.0, due - time.monotonic()))
                out.write(LENGTH.pack(len(data)))
                out.write(data)
                out.flush()
        except ValueError as error:
            return str(error)
        if before is None:
            return "not a readable video"


def main() -> int:
    """Play the path in the arguments."""
    try:
        reason = play(sys.argv[1])
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    print(reason, file=sys.stderr)
    return 2


if __name__ == "__main__":
    code = main()
    sys.stdout = None  # its buffer cannot be flushed into a closed pipe
    raise SystemExit(code)
