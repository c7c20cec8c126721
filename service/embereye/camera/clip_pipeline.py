"""The clips of a shard's alarms on their way from the ring to the hub: recorded, spooled, delivered.

The shard passes each evidence report with its camera. The pictures in the camera's ring begin the clip, and later
frames are appended until it ends (`Recorder`). A finished clip waits in a spool on the disk until `Delivery` has
uploaded it. For a video, a report requests a whole picture from the decoder, and the still is made when that picture
arrives. The end of a clip does not count time for which the process was suspended.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.camera.clips.recorder import Recorder
from embereye.camera.clips.ring import ClipPicture, ClipUnit
from embereye.camera.device.camera import CameraDevice
from embereye.levels import Kind
from embereye.process.telemetry.metric import counter, gauge
from embereye.process.timing.running import Running
from embereye.shard.clips.delivery import Delivery
from embereye.shard.service import ShardContext
from embereye.units import Box
from embereye.v1.clips_pb2 import Clip
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.shard_pb2 import Assignment

MADE = counter("embereye_camera_clips_made_total", "Clips and stills recorded.")
DELIVERED = counter("embereye_camera_clips_delivered_total", "Clips and stills stored by the hub.")
REFUSED = counter("embereye_camera_clips_refused_total", "Clips and stills rejected by the hub for good.")
DROPPED = counter("embereye_camera_clips_dropped_total", "Clips and stills dropped because the disk was full.")
LEFT_OUT = counter(
    "embereye_camera_clips_frames_left_out_total", "Frames left out of clips because the disk was too slow."
)
WAITING = gauge("embereye_camera_clips_waiting", "Clips waiting to be delivered to the hub.")
FAILING = gauge("embereye_camera_clips_failing", "1 while no clip can be written.")


class ClipPipeline:
    """The clip pipeline of a shard; created by `start`."""

    def __init__(self, context: ShardContext, running: Running) -> None:
        options = context.options
        assert options.data
        self._recorder = Recorder(options.data / f"{options.shard}.clips", self._wake)
        self._delivery = Delivery(context.links, self._recorder)
        # Videos: alarms whose stills wait for a whole picture, by camera: clip, report, box of the sign.
        self._stills: dict[str, list[tuple[Clip, EvidenceItem, Box | None]]] = {}
        self._running = running

    @classmethod
    async def start(cls, context: ShardContext, running: Running) -> "ClipPipeline":
        """Recover the clips on disk and begin to deliver them; `running` is the shard's."""
        pipeline = cls(context, running)
        await pipeline._recorder.start()
        context.tasks.start(pipeline._recorder.complete_cut_off(), name="complete-clips")
        context.tasks.start(pipeline._delivery.run(), name="deliver-clips")
        return pipeline

    def _wake(self) -> None:
        self._delivery.wake()

    @property
    def failing(self) -> str:
        """The reason why clips cannot be written, or ''."""
        return self._recorder.failing.why

    def record_report(
        self, camera: CameraDevice, report: EvidenceItem, box: Box | None, assignment: Assignment, now_ns: int
    ) -> None:
        """Begin or extend a clip for a `report` about `camera`; `box` is where its sign is seen."""
        before: list[ClipPicture] = [*(camera.video.frames() if camera.video else camera.ring.frames())]
        if camera.latest and (not before or before[-1] is not camera.latest):
            before.append(camera.latest)
        about = Clip(fleet=assignment.fleet, retention_ns=assignment.camera.evidence_retention_ns)
        stronger = self._recorder.record_report(
            report, before, box=box, now_ns=self._passed_ns(now_ns), about=about, after_ns=camera.clip_ns[1]
        )
        if stronger and camera.encoding and camera.video:
            camera.picture_wanted = True
            self._stills.setdefault(camera.device.id, []).append((about, report, box))

    def is_recording(self, camera: str, kind: Kind) -> bool:
        """True if a clip of this kind of fire is being recorded."""
        return self._recorder.is_recording(camera, kind)

    def record_frame(self, camera: CameraDevice, now_ns: int) -> None:
        """Add the latest picture of `camera` to its open clips. A video's units are added by `record_unit` instead."""
        if camera.latest:
            self._recorder.record_frame(camera.device.id, camera.latest, self._passed_ns(now_ns))
        if camera.picture:
            for about, report, box in self._stills.pop(camera.device.id, ()):
                self._recorder.record_still(about, camera.picture, report, box)

    def record_unit(self, camera: str, unit: ClipUnit, now_ns: int) -> None:
        """Add the latest access unit of `camera` to its open clips."""
        self._recorder.record_frame(camera, unit, self._passed_ns(now_ns))

    def end_clips(self, camera: str) -> None:
        """End the clips of a camera that another shard owns now."""
        self._recorder.end_clips(camera)
        self._stills.pop(camera, None)

    def end_overdue(self, now_ns: int) -> None:
        """End clips that are over. Call it about once a second."""
        self._recorder.end_overdue(self._passed_ns(now_ns))

    def _passed_ns(self, now_ns: int) -> int:
        """`now_ns` minus all time for which the process was suspended: a clip received nothing then."""
        self._running.since(now_ns)
        return now_ns - self._running.stalled_ns

    async def drain(self, seconds: float) -> None:
        """End every clip and wait up to `seconds` for the hub to store them; the others wait on disk."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._recorder.flush()
        while self._delivery.waiting and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def close(self) -> None:
        """Release the writing thread."""
        self._recorder.close()

    def metrics(self) -> Iterator[Metric]:
        """Yield counters and gauges, read at scrape time."""
        recorder, delivery = self._recorder, self._delivery
        yield MADE.value(recorder.made)
        yield DELIVERED.value(delivery.delivered)
        yield REFUSED.value(delivery.refused)
        yield DROPPED.value(recorder.spool.dropped)
        yield LEFT_OUT.value(recorder.left_out)
        yield WAITING.value(delivery.waiting)
        yield FAILING.value(bool(recorder.failing))
