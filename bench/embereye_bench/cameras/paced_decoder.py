"""Decode one video at its rate, and reduce it: the least cost of a shard with one camera.

`python -m embereye_bench.cameras.paced_decoder FILE ENCODING RATE` decodes FILE with the shard's decoder, RATE pictures
a second, until standard input is closed. It decodes JOINED pictures at a time and reduces the last, as a shard does
while nothing flickers. It answers each line with its pictures and CPU seconds so far.
"""

import select
import sys
import time
from collections.abc import Iterator

import av
import cv2

from embereye.camera.decode.image import DecodeOrder, PictureDelayedError
from embereye.camera.decode.video import VideoDecoder
from embereye.process.heap import keep_freed_memory

ORDER = DecodeOrder(1, smoothed=False)
JOINED = 2  # pictures; at 15 a second, detection analyses every second one


def _units(path: str) -> Iterator[bytes]:
    """Yield the access units of the file, again and again."""
    with av.open(path) as source:
        units = [bytes(packet) for packet in source.demux(video=0) if packet.size]
    while True:
        yield from units


def main() -> None:
    """Decode until standard input is closed."""
    path, encoding, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
    keep_freed_memory()
    cv2.setNumThreads(1)
    decoder, units = VideoDecoder(encoding, smoothed=ORDER.smoothed), _units(path)
    seconds, pictures, due = 0.0, 0, time.monotonic()
    while True:
        due = max(due + JOINED / rate, time.monotonic())
        while select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            if not sys.stdin.readline():
                return
            print(pictures, seconds, flush=True)
        began = time.thread_time()
        try:
            decoder.decode(ORDER, [(next(units), pictures + number) for number in range(JOINED)])
        except PictureDelayedError:
            continue
        finally:
            seconds += time.thread_time() - began
            pictures += JOINED


if __name__ == "__main__":
    main()
