"""A camera shard's canary: an undeclared camera that shows a growing fire, to prove that fires are detected.

`burn` creates a `CameraDevice` that no assignment names, and pushes pictures that `FireFilm` draws. They pass through
mailbox, decoder pool and detectors like any camera's, until the fire is reported. Evidence goes to the `Fire`, which
marks it as a canary's before the hub gets it. The shard subtracts the canary's CPU time from its load.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from embereye.camera.clips.ring import Budget
from embereye.camera.device.camera import CameraDevice, ShardLinks
from embereye.camera.device.signs import signs_of
from embereye.camera.scheduling.mailbox import Tally
from embereye.detect.vision.observation import Observation
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.timing.clock import now_ns
from embereye.shard.evidence.canary import Fire
from embereye.shard.evidence.episodes import Episodes
from embereye.v1.shard_pb2 import CameraSettings
from embereye.v1.types_pb2 import Device
from embereye.zone.canary import ZONE

Image = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 160, 120  # pixels; the size that detectors work at
RATE = 10.0  # frames/s, enough for flicker
CALM = 5  # frames before the fire
FLAME_SCORE = 0.5  # even odds, independent of the fleet's threshold, which may be higher
MIN_RATE = 5.0  # frames/s that an overloaded shard still analyses, as for a usual camera


class FireFilm:
    """Pictures of flames in front of a wall, drawn one at a time."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)
        self._wall = cv2.resize(random.integers(70, 110, (15, 20, 3)).astype(np.uint8), (WIDTH, HEIGHT))
        self._cells = random.random((8, 5)).astype(np.float32)  # of turbulence
        self._random = random
        self._noise = random.integers(0, 7, (4, HEIGHT, WIDTH, 3)).astype(np.uint8)

    def picture(self, number: int) -> bytes:
        """Draw picture `number` as JPEG; the fire begins with picture CALM."""
        picture: Image = cv2.add(self._wall, self._noise[number % len(self._noise)])  # type: ignore[assignment]
        if number >= CALM:
            seconds = (number - CALM) / RATE
            self._burn(picture, seconds)
        return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()

    def _burn(self, picture: Image, seconds: float) -> None:
        height, width = int(48 + 20 * min(1.0, seconds / 3)), 44
        y, x = np.mgrid[0:height, 0:width].astype(np.float32)
        up, across = 1 - y / height, (x + 0.5) / width * 2 - 1
        # The turbulence never repeats or moves as a whole, because the detector takes that for no flame.
        self._cells = (0.45 * self._cells + 0.55 * self._random.random(self._cells.shape)).astype(np.float32)
        turbulence = cv2.resize(self._cells, (width, height), interpolation=cv2.INTER_CUBIC)
        heat = np.clip(1.5 * (1 - np.abs(across)) ** 0.7 * (1.15 - up) * (1.7 * turbulence - 0.1), 0, 1)
        colour = np.stack(
            [np.interp(heat, (0, 0.25, 0.5, 0.75, 1), tones)
             for tones in ((5, 8, 20, 60, 170), (10, 45, 115, 205, 248), (90, 210, 255, 255, 255))], axis=-1,
        )  # fmt: skip  # from smoky red to nearly white, BGR
        top, left = HEIGHT - 8 - height, (WIDTH - width) // 2
        window = picture[top : top + height, left : left + width]
        opacity = np.clip((heat - 0.12) / 0.25, 0, 1)[..., None]
        window[:] = (window * (1 - opacity) + colour * opacity).astype(np.uint8)


@dataclass
class CameraCanary:
    """Burns canary fires. Their camera has a separate mailbox, ledger and times, so the shard's counts exclude it.

    `withdraw` removes a camera from the pool.
    """

    links: ShardLinks
    withdraw: Callable[[CameraDevice], None]
    cpu_seconds: float = 0.0  # CPU time of canaries, including decoding

    async def burn(self, fire: Fire, fleet: str, settings: CameraSettings) -> None:
        """Push the pictures of a growing fire at RATE until the fire is reported."""
        episodes = Episodes(fleet)

        def report(camera: CameraDevice, seen: Observation) -> None:
            for sign in signs_of(camera, seen):
                if evidence := episodes.observe(sign, now_ns()):
                    fire.report(evidence)

        links = replace(
            self.links,
            report=report,
            ring_budget=Budget(),
            model_host=None,
            delays=LatencyHistogram(),
            ages=LatencyHistogram(),
        )
        fleets = CameraSettings()
        fleets.CopyFrom(settings)
        fleets.flame_threshold = FLAME_SCORE
        device = Device(id=fire.device, zone=ZONE, detectors=["flame"], fps_target=2 * RATE, fps_min=MIN_RATE)
        camera, film, number = CameraDevice(device, fleets, links), FireFilm(), 0
        drawing = 0.0
        try:
            while not fire.reported.is_set():
                began = time.thread_time()
                picture = film.picture(number)
                drawing += time.thread_time() - began
                if number == CALM:
                    fire.light()
                camera.push_frame(picture, now_ns(), Tally())
                number += 1
                await asyncio.sleep(1 / RATE)
        finally:
            self.withdraw(camera)
            self.cpu_seconds += drawing + camera.analyser.cost.cpu_seconds
            camera.close()
