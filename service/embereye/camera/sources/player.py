"""Plays one video file to standard output as JPEG frames, each behind its length: a process that can be killed.

A file stands for a camera, so it is played at its own frame rate, over and over.
Run as `python -m embereye.camera.sources.player PATH`; exit code 2 and a sentence on standard error where it cannot.
"""

import struct
import sys
import time

LENGTH = struct.Struct(">I")
QUALITY = 90  # JPEG quality: above it only the file grows
OPEN_MS = READ_MS = 5_000
RATES = (0.1, 240.0)  # frames/s believed of a file; others play at RATE
RATE = 15.0


def play(path: str) -> str:
    """Play `path` until standard output is closed; returns why it cannot."""
    import cv2

    cv2.setNumThreads(1)
    options = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, READ_MS]
    out = sys.stdout.buffer
    due = time.monotonic()
    while True:
        video = cv2.VideoCapture(path, cv2.CAP_FFMPEG, options)
        rate = video.get(cv2.CAP_PROP_FPS)
        period = 1.0 / (rate if RATES[0] <= rate <= RATES[1] else RATE)
        played = 0
        while True:
            whole, frame = video.read()
            if not whole:
                break
            coded, data = cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            if not coded:
                return "a frame cannot be coded as JPEG"
            # Late frames are sent at once, but a long pause is not caught up with.
            due = max(due + period, time.monotonic() - 1.0)
            time.sleep(max(0.0, due - time.monotonic()))
            out.write(LENGTH.pack(len(data)))
            out.write(data.tobytes())
            out.flush()
            played += 1
        video.release()
        if not played:
            return "it is not a video that can be read"


def main() -> int:
    """Play the file named on the command line."""
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
