"""The camera shard: owns cameras, runs their sources and their analysis, turns what they see into evidence."""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import cv2
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from embereye.camera.decoders import Decoders, thread_count
from embereye.camera.device import CameraDevice
from embereye.camera.evidence import Evidence
from embereye.camera.mailbox import Tally
from embereye.camera.model import ModelHost
from embereye.camera.ring import Budget
from embereye.camera.schedule import Admission, Demand
from embereye.camera.signs import signs
from embereye.camera.sources.declared import SourceError
from embereye.camera.sources.dials import Dials
from embereye.camera.sources.intake import Intake
from embereye.camera.sources.open import open_source
from embereye.camera.sources.push import WINDOW, PushService, Verdict
from embereye.camera.sources.source import Source, keep_playing
from embereye.detect.vision.observation import Observation
from embereye.process.beat import beat
from embereye.process.delays import Delays
from embereye.process.grpc_server import Service
from embereye.process.memory import settle
from embereye.shard.episodes import Episodes
from embereye.shard.ledger import Ledger
from embereye.shard.meter import Meter
from embereye.shard.series import DEVICE_SERIES, over_limit
from embereye.shard.service import ShardContext
from embereye.v1.evidence_pb2 import DeviceStatus
from embereye.v1.frames_pb2_grpc import add_FramesServicer_to_server
from embereye.v1.shard_pb2 import Assignment, Load
from embereye.v1.types_pb2 import Device, Level

logger = logging.getLogger(__name__)

TICK = 0.25  # seconds between looks at coverage
SAMPLE_TICKS = 3  # ticks between load samples
CLEAR = Level.LEVEL_CLEAR  # looked up once: that costs more than all the rest of a comparison
DIALS = 8  # sources that are being connected at the same time
DRAIN_SECONDS = 1.0  # for frames in work


class CameraShard:
    """A `ShardCore`; see `embereye.shard.service`."""

    def __init__(self, *, threads: int | None = None) -> None:
        self._cameras: dict[str, CameraDevice] = {}
        self._sources: dict[str, asyncio.Task[Any]] = {}
        self._assignment = Assignment()
        self._episodes = Episodes("")
        self._decoders = Decoders(threads or thread_count(os.cpu_count()))
        self._push = PushService(self._take)
        self._meter = Meter()
        self._budget = Budget()
        self._evidence: Evidence | None = None  # where there is a folder for it
        self._context: ShardContext | None = None
        self._dials = Dials(DIALS)
        self._intake = Intake()
        self._admission = Admission()
        self._delays = Delays()
        self._ages = Delays()
        self._host = ModelHost()
        self._retired = Ledger()  # of cameras that were ours: counters never fall
        self._retired_cpu = 0.0
        self._retired_failures = 0
        self._retired_unread = 0.0
        self._draining = False
        self._covered: dict[str, bool] = {}

    def services(self) -> Iterable[Service]:
        """The gRPC services of a camera shard."""
        return [Service(add_FramesServicer_to_server, self._push, "embereye.v1.Frames", WINDOW)]

    async def start(self, context: ShardContext) -> None:
        """Start the decode pool and the tick."""
        settle()
        cv2.setNumThreads(1)  # our processes are the parallelism; OpenCV's own threads would fight with them
        self._context = context
        await self._decoders.start()
        if context.options.data:
            self._evidence = await Evidence.start(context)
        context.tasks.start(self._tick(), name="camera-tick")
        context.tasks.start(self._host.run(), name="camera-model")

    def apply(self, assignment: Assignment) -> None:
        """Own exactly these cameras; only the sources of cameras that are new or changed are (re)started."""
        settings = assignment.camera
        self._host.configure(settings.model if settings.HasField("model") else None)
        peers = {peer.shard: peer.grpc for peer in assignment.peers}
        if self._episodes.fleet != assignment.fleet:
            self._episodes = Episodes(assignment.fleet)
        self._assignment = assignment
        wanted = {device.id: device for device in assignment.devices}
        gone = self._cameras.keys() - wanted.keys()
        for camera in gone:
            self._release(camera)
        self._episodes.forget(set(gone))
        self._push.drain(
            {camera: peers.get(assignment.elsewhere.get(camera, ""), "") for camera in gone},
            "another shard owns it now",
        )
        self._push.forget(gone)
        for camera, device in wanted.items():
            known = self._cameras.get(camera)
            if known is None:
                self._cameras[camera] = CameraDevice(
                    device,
                    settings,
                    budget=self._budget,
                    submit=self._decoders.submit,
                    report=self._observe,
                    host=self._host,
                    delays=self._delays,
                    ages=self._ages,
                )
                self._open(device)
                continue
            reopened = (known.device.source, known.device.credentials) != (device.source, device.credentials)
            known.configure(device, settings)
            if reopened:
                self._close(camera)
                self._open(device)

    def _open(self, device: Device) -> None:
        camera = self._cameras[device.id]
        camera.pushed, camera.unopened, camera.state = False, "", "connecting"
        try:
            source = open_source(
                device.source, self._dials, self._intake, secret=device.credentials, frame_rate=device.fps_target
            )
        except SourceError as error:
            camera.unopened = str(error)
            camera.state = f"failed: {error}"
            return
        if source is None:
            camera.pushed, camera.state = True, "waiting for a sender"
        elif not self._draining:
            self._play(camera, source)

    def _play(self, camera: CameraDevice, source: Source) -> None:
        assert self._context, "started before it is assigned cameras"
        name = camera.device.id

        def tell(state: str) -> None:
            camera.state = state

        self._sources[name] = self._context.tasks.start(
            keep_playing(name, source, camera.offer, tell), name=f"source-{name}"
        )

    def _close(self, camera: str) -> None:
        if task := self._sources.pop(camera, None):
            task.cancel()

    def _release(self, name: str) -> None:
        self._close(name)
        camera = self._cameras.pop(name)
        self._decoders.withdraw(camera)
        camera.ring.close()
        if self._evidence:
            self._evidence.forget(name)
        if camera.model:
            self._host.workers.withdraw(camera.model)
        camera.mailbox.discard("handed over")
        ledger = camera.mailbox.ledger
        self._retired.offered += ledger.offered
        self._retired.analysed += ledger.analysed
        self._retired.shed += ledger.shed
        # A frame in work is finished, but nobody counts it any more.
        self._retired.shed["handed over"] += max(0, ledger.waiting)
        self._retired.rejected += ledger.rejected
        if self._context is not None:
            closed = ledger.message()
            closed.shed["handed over"] += closed.waiting
            closed.waiting = 0
            self._context.closed(name, closed)
        self._retired_cpu += camera.cpu_seconds
        self._retired_failures += camera.failures
        self._retired_unread += camera.rest.unread

    def _take(self, name: str, image: bytes, time_ns: int, tally: Tally) -> Verdict:
        camera = self._cameras.get(name)
        if self._draining:
            return Verdict(taken=False, reason="this shard is draining", elsewhere=True)
        if camera is None:
            owner = self._assignment.elsewhere.get(name)
            if owner is None:
                return Verdict(taken=False, reason=f'camera "{name}" is not declared in {self._assignment.fleet}')
            target = next((peer.grpc for peer in self._assignment.peers if peer.shard == owner), "")
            return Verdict(taken=False, reason=f"shard {owner} owns it", elsewhere=True, target=target)
        if not camera.pushed:
            return Verdict(taken=False, reason=f'camera "{name}" is declared with a source of its own, not with push')
        return camera.push(image, time_ns, tally)

    def _observe(self, camera: CameraDevice, seen: Observation) -> None:
        device = camera.device
        if self._cameras.get(device.id) is not camera:
            return  # handed over while its frame was in work
        now = time.time_ns()
        # Most frames of most cameras say nothing, as the ones before them did.
        telling = seen.level > CLEAR or self._episodes.active(device.id)
        for sign, finding in zip(signs(camera, seen), seen.findings, strict=True) if telling else ():
            report = self._episodes.observe(sign, now)
            if report and self._context:
                self._context.report(report)
                if self._evidence:
                    self._evidence.sign(camera, report, finding.box, self._assignment, now)
        if self._evidence:
            self._evidence.frame(camera, now)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            now = time.time_ns()
            covered = {name: not camera.reason(now) for name, camera in self._cameras.items()}
            if covered != self._covered and self._context:
                self._context.coverage_changed()
            self._covered = covered
            if ticks % SAMPLE_TICKS == 0:
                if self._evidence:
                    self._evidence.tick(now)
                self._admit(now)
                totals = self._totals()
                self._meter.sample(
                    time.monotonic(),
                    # More shards would look at what is left with its senders, too.
                    offered=totals.offered + int(self._unread),
                    analysed=totals.analysed,
                    cpu=time.process_time() + self._decoders.cpu_seconds,
                )
            ticks += 1
            await beat(TICK)

    def _admit(self, now: int) -> None:
        demands = [Demand(name, camera.least_rate, camera.cost_seconds) for name, camera in self._cameras.items()]
        self._admission.decide(demands, self._decoders.threads, now)
        for name, camera in self._cameras.items():
            camera.refused = self._admission.refused.get(name, "")

    def _totals(self) -> Ledger:
        totals = Ledger(
            offered=self._retired.offered,
            analysed=self._retired.analysed,
            shed=Counter(self._retired.shed),
            rejected=Counter(self._retired.rejected),
        )
        for camera in self._cameras.values():
            ledger = camera.mailbox.ledger
            totals.offered += ledger.offered
            totals.analysed += ledger.analysed
            totals.shed.update(ledger.shed)
            totals.rejected.update(ledger.rejected)
        return totals

    @property
    def _unread(self) -> float:
        return self._retired_unread + sum(camera.rest.unread for camera in self._cameras.values())

    def devices(self, now_ns: int) -> list[DeviceStatus]:
        """The status of every owned camera."""
        statuses = [camera.status(now_ns) for camera in self._cameras.values()]
        if self._evidence and (failing := self._evidence.failing):
            for status in statuses:
                status.state = f"{status.state}; no clips: {failing}"
        return statuses

    def covered(self, now_ns: int) -> tuple[int, int]:
        """How many cameras it owns, and how many of them are covered."""
        return len(self._cameras), sum(not camera.reason(now_ns) for camera in self._cameras.values())

    def degraded(self) -> str:
        """Nothing: each camera says it of itself."""
        return ""

    def load(self) -> Load:
        """What was measured over the last seconds."""
        now = time.time_ns()
        waiting = [frame for camera in self._cameras.values() if (frame := camera.mailbox.waiting)]
        return self._meter.load(
            queue_depth=sum(camera.mailbox.ledger.waiting for camera in self._cameras.values()),
            oldest_age_ns=max((now - frame.received_ns for frame in waiting), default=0),
        )

    def metrics(self) -> Iterator[Metric]:
        """Totals over all cameras: one camera's numbers are in its status, not in a label."""
        totals = self._totals()
        cameras = list(self._cameras.values())
        yield CounterMetricFamily("embereye_camera_frames_offered", "Frames received.", value=totals.offered)
        yield CounterMetricFamily("embereye_camera_frames_analysed", "Frames analysed.", value=totals.analysed)
        yield CounterMetricFamily(
            "embereye_camera_frames_unread",
            "Frames left with their senders under overload, as far as can be told. They are not offered.",
            value=self._unread,
        )
        shed = CounterMetricFamily("embereye_camera_frames_shed", "Frames given up, by reason.", labels=["reason"])
        for reason, count in sorted(totals.shed.items()):
            shed.add_metric([reason], count)
        yield shed
        rejected = CounterMetricFamily("embereye_camera_frames_rejected", "Unusable frames.", labels=["reason"])
        for reason, count in sorted(totals.rejected.items()):
            rejected.add_metric([reason], count)
        yield rejected
        yield CounterMetricFamily(
            "embereye_camera_analysis_cpu_seconds",
            "CPU time of decoding and detection.",
            value=self._retired_cpu + sum(camera.cpu_seconds for camera in cameras),
        )
        yield CounterMetricFamily(
            "embereye_camera_analysis_failures",
            "Frames on which a detector failed.",
            value=self._retired_failures + sum(camera.failures for camera in cameras),
        )
        yield HistogramMetricFamily(
            "embereye_camera_frame_delay_seconds",
            "From a frame's arrival to the end of its analysis.",
            buckets=self._delays.buckets(),
            sum_value=self._delays.sum,
        )
        yield HistogramMetricFamily(
            "embereye_camera_frame_age_seconds",
            "From a frame's capture, as its sender tells it, to the end of its analysis.",
            buckets=self._ages.buckets(),
            sum_value=self._ages.sum,
        )
        sources = GaugeMetricFamily("embereye_camera_sources", "Cameras by state of their source.", labels=["state"])
        states = Counter(camera.state.partition(":")[0].partition(";")[0] for camera in cameras)
        for state, count in sorted(states.items()):
            sources.add_metric([state], count)
        yield sources
        yield GaugeMetricFamily("embereye_camera_push_streams", "Open push streams.", value=self._push.streams)
        yield GaugeMetricFamily(
            "embereye_camera_suspects",
            "Cameras that suspect fire.",
            value=sum(camera.level > Level.LEVEL_CLEAR for camera in cameras),
        )
        if self._evidence:
            yield from self._evidence.metrics()
        models = [camera.model for camera in cameras if camera.model]
        if models:
            yield CounterMetricFamily(
                "embereye_camera_model_runs", "Pictures that the model looked at.", value=sum(of.runs for of in models)
            )
            yield CounterMetricFamily(
                "embereye_camera_model_cpu_seconds",
                "CPU time of the model.",
                value=sum(of.cpu_seconds for of in models),
            )
        now = time.time_ns()
        yield GaugeMetricFamily(
            "embereye_camera_degraded",
            "Cameras in which less is detected than was asked for.",
            value=sum(bool(camera.degraded(now)) for camera in cameras),
        )
        yield CounterMetricFamily(
            "embereye_camera_decoders_died", "Decoder processes that were replaced.", value=self._decoders.died
        )
        for name, text, value in (
            ("decoders", "Decoder processes.", self._decoders.threads),
            ("frames_waiting", "Frames that wait for a decoder.", self._decoders.waiting),
            ("frames_in_work", "Frames that are being decoded or looked at.", self._decoders.in_work),
            ("refused", "Cameras that are not looked at for want of decoding.", len(self._admission.refused)),
        ):
            yield GaugeMetricFamily(f"embereye_camera_{name}", text, value=value)
        yield from _each(cameras)

    async def drain(self) -> None:
        """Send senders away, close sources, finish the frames in work."""
        self._draining = True
        self._push.drain(None, "this shard is draining")
        for camera in list(self._sources):
            self._close(camera)
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._decoders.busy and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._evidence:
            await self._evidence.drain(max(0.0, deadline - time.monotonic()))

    async def stop(self) -> None:
        """Close everything."""
        for camera in list(self._cameras):
            self._close(camera)
        self._decoders.stop()
        if self._evidence:
            self._evidence.close()
        self._host.workers.stop()


def _each(cameras: list[CameraDevice]) -> Iterator[Metric]:
    """The rate in force and the frames given up of each camera, up to a number of cameras."""
    rate = GaugeMetricFamily(
        "embereye_camera_rate_hertz",
        "Frames per second that are looked at: `in_force` now, `target` where nothing is short, `least` at all times.",
        labels=["camera", "zone", "bound"],
    )
    shed = CounterMetricFamily(
        "embereye_camera_device_shed", "Frames of one camera that were given up.", labels=["camera", "zone"]
    )
    for camera in cameras[:DEVICE_SERIES]:
        labels = [camera.device.id, camera.device.zone]
        pace = camera.mailbox.pace
        for bound, value in (("in_force", pace.rate), ("target", pace.target), ("least", pace.least)):
            rate.add_metric([*labels, bound], value)
        shed.add_metric(labels, camera.mailbox.ledger.shed.total())
    yield rate
    yield shed
    yield from over_limit(len(cameras))
