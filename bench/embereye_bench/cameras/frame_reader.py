"""Read raw frames from the pipes of many ffmpegs and analyse them as a shard does: the end of Frigate's recipe.

`python -m embereye_bench.cameras.frame_reader WIDTH HEIGHT DESCRIPTOR…`: each descriptor is a pipe of yuv420p frames.
"""

import os
import select
import sys
import time

import cv2
import numpy as np

from embereye.detect.vision.detector import Detector


def main() -> None:
    """Analyse every frame until all pipes are closed."""
    width, height, *descriptors = map(int, sys.argv[1:])
    size = width * height * 3 // 2
    cv2.setNumThreads(1)
    detectors = {descriptor: Detector(smoke=None) for descriptor in descriptors}
    frames = {descriptor: bytearray() for descriptor in descriptors}
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    while frames:
        for descriptor, _ in poll.poll():
            frame = frames[descriptor]
            data = os.read(descriptor, size - len(frame))
            if not data:
                poll.unregister(descriptor)
                del frames[descriptor]
                continue
            frame += data
            if len(frame) == size:
                planes = np.frombuffer(frame, np.uint8).reshape(height * 3 // 2, width)
                picture = cv2.cvtColor(planes, cv2.COLOR_YUV2BGR_I420)
                detectors[descriptor].detect(picture, time.monotonic_ns())  # type: ignore[arg-type]
                frames[descriptor] = bytearray()


if __name__ == "__main__":
    main()
