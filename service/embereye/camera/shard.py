"""The camera shard: owns cameras, runs their sources and analysis, and reports evidence.

`apply` opens and closes cameras as the assignment says. A source, or a sender, offers frames to its `CameraDevice`,
which queues for the decoder pool; `_report_signs` turns the observation of an analysed frame into evidence and clips.
`_tick` checks coverage and, less often, adapts rates, refuses cameras and saves views.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import cv2
from prometheus_client.core import Metric

from embereye.camera.canary import CameraCanary
from embereye.camera.candidate import CameraCandidate
from embereye.camera.clip_pipeline import ClipPipeline
from embereye.camera.clips.ring import Budget, ClipUnit
from embereye.camera.decode import hardware
from embereye.camera.decode.image import Decoded
from embereye.camera.decode.pool import DecoderPool, decoder_count
from embereye.camera.device.camera import CameraDevice, ShardLinks
from embereye.camera.device.signs import signs_of
from embereye.camera.device.view_store import ViewStore, view_of
from embereye.camera.hardware_decoding import HardwareDecoding
from embereye.camera.margins import margin_of
from embereye.camera.metrics import (
    PUSH_STREAMS,
    REFUSED,
    camera_metrics,
    decoder_metrics,
    frame_metrics,
    latency_metrics,
    live_metrics,
)
from embereye.camera.model.host import ModelHost
from embereye.camera.rate_adapter import RateAdapter
from embereye.camera.scheduling.mailbox import Frame, Tally
from embereye.camera.source_tasks import SourceTasks
from embereye.camera.sources.push.service import WINDOW, PushService, PushVerdict
from embereye.camera.totals import Totals
from embereye.detect.vision.observation import Observation
from embereye.levels import Kind, Level
from embereye.process.grpc_server import Service
from embereye.process.heap import collect_garbage, freeze_heap, keep_freed_memory
from embereye.process.timing.aligned_sleep import aligned_sleep
from embereye.process.timing.clock import now_ns
from embereye.process.timing.running import Running
from embereye.shard.candidate.current import current_candidate
from embereye.shard.evidence.canary import Fire
from embereye.shard.evidence.episodes import Episodes
from embereye.shard.margins import SPAN_TICKS
from embereye.shard.meter import Meter
from embereye.shard.selftests import RunningTest
from embereye.shard.service import ShardContext
from embereye.units import SECOND
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, MarkedPlaces, Region
from embereye.v1.frames_pb2_grpc import add_FramesServicer_to_server
from embereye.v1.shard_pb2 import Assignment, CameraSettings, Load
from embereye.v1.types_pb2 import Device

TICK = 0.25  # seconds between two checks of coverage
ADAPT_TICKS = 2  # ticks between two adaptations of the rates
SAMPLE_TICKS = 3  # ticks between two samples of load
CLEAR = Level.CLEAR  # looked up once, because the attribute access costs more than the comparison
LIVE_LOAD = 0.7  # share of the decoders' time; above it, no picture of a video is made for viewers
# Why live pictures pause, in a sentence that has to fit into the end of a WebSocket: 120 bytes.
OVERLOADED = "its shard is overloaded, and detection comes first. Live pictures are back when it keeps up."
DRAIN_SECONDS = 1.0  # for frames in work


class CameraShard:
    """A `ShardCore`; see `embereye.shard.service`."""

    def __init__(self, *, decoders: int | None = None) -> None:
        self._cameras: dict[str, CameraDevice] = {}
        self._assignment = Assignment()
        self._episodes = Episodes("")
        self._pool = DecoderPool(decoders or decoder_count(os.cpu_count()))
        self._sources = SourceTasks(self._pool.dispatch_gathered)
        self._push = PushService(self.admit_pushed_frame)
        self._meter = Meter()
        self._clips: ClipPipeline | None = None  # None: no folder for clips
        self._context: ShardContext | None = None
        self._rates = RateAdapter(self._pool)
        # of the settings in force, and of the candidate
        self._model_hosts = ModelHost(), ModelHost(field="detection.candidate.model", idle=True)
        self._links = ShardLinks(
            submit=self._pool.submit, report=self._report_signs, ring_budget=Budget(), model_host=self._model_hosts[0],
            record=self._record_unit, analysed=self._judge_again, candidate_side=self._candidate_side,
        )  # fmt: skip
        self._candidate: CameraCandidate | None = None
        self._views: ViewStore | None = None  # None: no folder for views
        # By camera: places where people marked a flame or smoke as false, with its kind.
        self._marked: dict[str, list[tuple[Kind, Region]]] = {}
        self._canary = CameraCanary(self._links, self._pool.withdraw)
        self._hardware = HardwareDecoding(hardware.wanted())
        self._retired = Totals()  # counts of cameras that were handed over
        self._draining = False
        self._running = Running()

    def services(self) -> Iterable[Service]:
        """The gRPC services of a camera shard."""
        return [Service(add_FramesServicer_to_server, self._push, "embereye.v1.Frames", WINDOW)]

    async def start(self, context: ShardContext) -> None:
        """Start the decoder pool and the tick; raise RuntimeError if no decoder starts."""
        keep_freed_memory()
        freeze_heap()
        cv2.setNumThreads(1)  # the decoder processes are parallel already; OpenCV's threads would compete with them
        self._context = context
        if context.tls:
            context.tls.subscribe(self._push.access.recheck_senders)
        await self._pool.start()
        if context.options.data:
            self._views = ViewStore(Path(context.options.data) / "views")
            self._clips = await ClipPipeline.start(context, self._running)
        self._sources.start(context.tasks, records=self._clips is not None)
        context.tasks.start(self._tick(), name="camera-tick")
        context.tasks.start(self._links.live.run(context.links, self._live_hello), name="live-pictures")
        context.tasks.start(collect_garbage(self._pool.release_unused_slots), name="collect-garbage")
        context.tasks.start(self._hardware.find(), name="find-hardware-decoding")
        for host, name in zip(self._model_hosts, ("camera-model", "candidate-model"), strict=True):
            context.tasks.start(host.run(), name=name)

    def apply(self, assignment: Assignment) -> None:
        """Own exactly these cameras. Only new cameras, and cameras with changed streams, (re)open their sources."""
        # Copy: a detector that retains a part of the message would retain the whole assignment, which names each device
        # of the fleet.
        settings = CameraSettings()
        settings.CopyFrom(assignment.camera)
        self._model_hosts[0].configure(settings.model if settings.HasField("model") else None)
        self._push.access.configure(settings.access if settings.HasField("access") else None)
        if self._episodes.fleet != assignment.fleet:
            self._episodes = Episodes(assignment.fleet)
        self._episodes.configure(settings.deadline_ns)
        self._assignment = assignment
        wanted = {device.id: _copied(device) for device in assignment.devices}
        self._release_cameras(self._cameras.keys() - wanted.keys())
        for name, device in wanted.items():
            camera = self._cameras.get(name)
            if camera is None:
                self._cameras[name] = CameraDevice(device, settings, self._links)
                if self._views and (usual_levels := self._views.load(device)):
                    self._cameras[name].analyser.recall(usual_levels)
                self._set_marks(self._cameras[name])
                self._sources.open(self._cameras[name])
                continue
            reopened = _streams(camera.device) != _streams(device)
            camera.configure(device, settings)
            self._set_marks(camera)
            if reopened:
                self._sources.close(name)
                self._sources.open(self._cameras[name])

        self._apply_candidate(assignment)

    def _apply_candidate(self, assignment: Assignment) -> None:
        """Judge the same pictures by the assignment's candidate, if it has one."""
        self._candidate = current_candidate(
            assignment,
            self._candidate,
            lambda declared: CameraCandidate(declared, assignment.fleet, self._is_busy, self._model_hosts[1]),
            CameraCandidate.close,
            self._context.candidates if self._context else None,
        )
        if self._candidate is not None:
            self._candidate.watch(self._cameras, now_ns())

    def _is_busy(self) -> bool:
        """True if a candidate has to leave its time to the settings in force."""
        load = self._rates.load
        return max(load.decoders_busy, load.loop_busy) > LIVE_LOAD

    def _judge_again(self, camera: CameraDevice, frame: Frame, decoded: Decoded | None) -> None:
        """Let the candidate judge a frame that the settings in force have judged."""
        if self._candidate is not None and self._cameras.get(camera.device.id) is camera:
            self._candidate.judge(camera, frame, decoded, now_ns(), self._clips, self._assignment)

    def _candidate_side(self, camera: CameraDevice) -> int:
        return self._candidate.picture_side(camera) if self._candidate is not None else 0

    def _report_differences(self, now_ns: int) -> None:
        if self._candidate is not None and self._context and self._context.candidates:
            self._context.candidates.note_problem()
            for difference in self._candidate.differences(now_ns):
                self._context.candidates.add(difference)

    def _release_cameras(self, gone: set[str]) -> None:
        """Release cameras that other shards may own now, and redirect their senders."""
        for name in gone:
            self._sources.close(name)
            camera = self._cameras.pop(name)
            if self._views:
                self._views.save(camera.device, camera.analyser.usual_levels)
            self._pool.withdraw(camera)
            camera.close()
            if self._clips:
                self._clips.end_clips(name)
            final = self._retired.retire(camera)
            if self._context is not None:
                self._context.closed(name, final)
        self._episodes.forget(set(gone))
        peers = {peer.shard: peer.grpc for peer in self._assignment.peers}
        elsewhere = self._assignment.elsewhere
        self._push.send_drain(
            {name: peers.get(elsewhere.get(name, ""), "") for name in gone}, "another shard owns it now"
        )
        self._push.forget(gone)

    def admit_pushed_frame(self, name: str, image: bytes, time_ns: int, tally: Tally) -> PushVerdict:
        """Decide about a pushed frame of camera `name`, captured at `time_ns` (Unix epoch)."""
        camera = self._cameras.get(name)
        if self._draining:
            return PushVerdict(accepted=False, reason="this shard is draining", elsewhere=True)
        if camera is None:
            owner = self._assignment.elsewhere.get(name)
            if owner is None:
                reason = f'camera "{name}" is not declared in {self._assignment.fleet}'
                return PushVerdict(accepted=False, reason=reason)
            target = next((peer.grpc for peer in self._assignment.peers if peer.shard == owner), "")
            return PushVerdict(accepted=False, reason=f"shard {owner} owns it", elsewhere=True, target=target)
        if not camera.status.pushed:
            reason = f'camera "{name}": its declared source is not push'
            return PushVerdict(accepted=False, reason=reason)
        return PushVerdict(accepted=True, reason=camera.push_frame(image, time_ns, tally))

    def _report_signs(self, camera: CameraDevice, seen: Observation) -> None:
        """Report a frame's signs as evidence and add the frame to its camera's clips."""
        device = camera.device
        if self._cameras.get(device.id) is not camera:
            return  # handed over while its frame was in work
        now = now_ns()
        # Most frames of most cameras show nothing, as did the frames before them.
        has_signs = seen.level > CLEAR or self._episodes.is_active(device.id)
        for sign, finding in zip(signs_of(camera, seen), seen.findings, strict=True) if has_signs else ():
            report = self._episodes.observe(sign, now)
            if self._candidate is not None:
                self._candidate.note_in_force(sign, now, report.episode if report else "")
            if report and self._context:
                if traces := self._context.traces:
                    traces.trace(report, camera.received_ns, camera.received_ns + int(camera.waited * SECOND))
                self._context.report(report)
                if self._clips:
                    self._clips.record_report(camera, report, finding.box, self._assignment, now)
        if self._clips:
            self._clips.record_frame(camera, now)

    def _record_unit(self, camera: CameraDevice, unit: ClipUnit) -> None:
        """Add an access unit of a video to its camera's clips."""
        if self._clips:
            self._clips.record_unit(camera.device.id, unit, now_ns())

    def note_marked(self, places: MarkedPlaces) -> None:
        """Give cameras the places where people marked a flame or smoke as false."""
        self._marked.clear()
        for place in places.places:
            if (kind := Kind(place.kind)) in {Kind.FLAME, Kind.SMOKE}:
                self._marked.setdefault(place.device, []).append((kind, place.region))
        for camera in self._cameras.values():
            self._set_marks(camera)

    def note_self_tests(self, tests: Mapping[str, RunningTest]) -> None:
        """Ignore the regions of the running tests in the cameras' pictures, and measure them."""
        for name, camera in self._cameras.items():
            camera.analyser.set_self_test(tests.get(name))

    def _end_self_tests(self, now_ns: int) -> None:
        """End the tests whose limit has passed, although the hub did not end them."""
        for camera in self._cameras.values():
            if (test := camera.analyser.self_test) and test.is_over(now_ns):
                camera.analyser.set_self_test(None)

    def _set_marks(self, camera: CameraDevice) -> None:
        view = view_of(camera.device)
        regions = [(kind, region) for kind, region in self._marked.get(camera.device.id, ()) if region.view == view]
        boxes = [(kind, (region.x, region.y, region.width, region.height), region.area) for kind, region in regions]
        usual_levels = camera.analyser.usual_levels
        usual_levels.set_marks((box, area) for kind, box, area in boxes if kind == Kind.FLAME)
        usual_levels.set_smoke_marks(box for kind, box, _ in boxes if kind == Kind.SMOKE)

    async def light_canary(self, fire: Fire) -> None:
        """Show a growing fire to an undeclared camera."""
        await self._canary.burn(fire, self._assignment.fleet, self._assignment.camera)

    async def _tick(self) -> None:
        ticks, before = 0, dict[str, bool]()
        while True:
            now = now_ns()
            self._running.since(now)
            covered = {name: not camera.reason(now) for name, camera in self._cameras.items()}
            if covered != before and self._context:
                self._context.coverage_changed()
            before = covered
            for camera in self._cameras.values():
                camera.submit_overdue(now)
            self._note_margins(ticks, now)
            if ticks % ADAPT_TICKS == 0:
                self._rates.adapt(self._cameras.values(), now)
                self._serve_viewers()
            if ticks % SAMPLE_TICKS == 0:
                self._pool.poll_replies()
                if self._clips:
                    self._clips.end_overdue(now)
                self._report_differences(now)
                self._end_self_tests(now)
                self._save_a_view(now)
                self._rates.admit(self._cameras, now)
                self._sample_load()
            ticks += 1
            await aligned_sleep(TICK)

    def _note_margins(self, ticks: int, now_ns: int) -> None:
        """Note the margins of a share of the cameras."""
        if self._context:
            for camera in list(self._cameras.values())[ticks % SPAN_TICKS :: SPAN_TICKS]:
                if margin := margin_of(camera, now_ns):
                    self._context.margin(margin)

    def _live_hello(self) -> Coverage:
        options = self._context.options if self._context else None
        return Coverage(fleet=self._assignment.fleet, shard=options.shard if options else "")

    def _serve_viewers(self) -> None:
        """Pause live pictures while the shard is overloaded.

        Make a picture of each video for browsers that do not play it, unless the decoders are busy.
        """
        live, pause = self._links.live, self._rates.live_pause
        pause.follow(overloaded=self._rates.is_overloaded, now=time.monotonic())
        live.pause(OVERLOADED if pause.is_on else "")
        if self._rates.load.decoders_busy < LIVE_LOAD:
            for name in live.wanted:
                camera = self._cameras.get(name)
                if camera and camera.encoding and live.is_picture_wanted(name, camera.live_encoding):
                    camera.picture_wanted = True

    def _sample_load(self) -> None:
        totals = self._totals()
        self._meter.sample(
            time.monotonic(),
            # With more shards, frames that now stay with their senders would be analysed too.
            offered=totals.ledger.offered + int(totals.unread),
            analysed=totals.ledger.analysed,
            cpu=time.process_time() + self._pool.cpu_seconds - self._canary.cpu_seconds,
        )

    def _totals(self) -> Totals:
        return self._retired.plus(self._cameras.values())

    def devices(self, now_ns: int) -> list[DeviceStatus]:
        """Return the status of every owned camera."""
        statuses = [camera.message(now_ns) for camera in self._cameras.values()]
        if self._clips and (failing := self._clips.failing):
            for status in statuses:
                status.state = f"{status.state}; no clips: {failing}"
        if software := self._hardware.degraded:
            for status in statuses:
                if self._cameras[status.id].encoding:
                    status.state = f"{status.state}; {software}"
        return statuses

    def statuses(self, now_ns: int) -> Iterator[DeviceStatus]:
        """Iterate over the same statuses; a shard has few cameras."""
        return iter(self.devices(now_ns))

    def covered(self, now_ns: int) -> tuple[int, int]:
        """Return the numbers of owned and of covered cameras."""
        return len(self._cameras), sum(not camera.reason(now_ns) for camera in self._cameras.values())

    def degraded(self) -> str:
        """Return why hardware decoding is not used as requested, or ''; other reasons concern single cameras."""
        return self._hardware.degraded

    def load(self) -> Load:
        """Return the load measured over the last seconds."""
        now = now_ns()
        since = self._running.since(now)  # frames that wait could not get a turn before this
        mailboxes = [camera.arrivals.mailbox for camera in self._cameras.values()]
        waiting = [frame for mailbox in mailboxes if (frame := mailbox.waiting)]
        return self._meter.load(
            # frames that are set aside need no capacity
            queue_depth=sum(
                camera.arrivals.mailbox.ledger.waiting - camera.arrivals.aside_count
                for camera in self._cameras.values()
            ),
            oldest_age_ns=max((now - max(frame.received_ns, since) for frame in waiting), default=0),
        )

    def metrics(self) -> Iterator[Metric]:
        """Yield the shard's metric families, read at scrape time."""
        yield from frame_metrics(self._totals())
        yield from latency_metrics(self._links.delays, self._links.ages)
        yield from camera_metrics(self._cameras.values(), now_ns())
        yield from self._hardware.metrics()
        yield PUSH_STREAMS.value(self._push.streams)
        yield REFUSED.value(len(self._rates.admission.refused))
        yield from decoder_metrics(self._pool, self._rates.load)
        yield from live_metrics(self._links.live)
        if self._clips:
            yield from self._clips.metrics()
        if self._candidate:
            yield from self._candidate.counts.metrics()

    def _save_a_view(self, now_ns: int) -> None:
        """Save the view whose turn it is. A save takes a fraction of a millisecond."""
        if self._views and (camera := self._views.next_due(self._cameras, now_ns)):
            self._views.save(camera.device, camera.analyser.usual_levels)

    async def drain(self, successor: str = "") -> None:
        """Redirect senders, close sources, finish the frames in work and deliver clips, within DRAIN_SECONDS."""
        self._draining = True
        self._push.send_drain(None, "this shard is draining", successor)
        self._sources.drain()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._pool.is_busy and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._clips:
            await self._clips.drain(max(0.0, deadline - time.monotonic()))

    async def stop(self) -> None:
        """Close everything."""
        for name, camera in self._cameras.items():
            self._sources.close(name)
            if self._views:
                self._views.save(camera.device, camera.analyser.usual_levels)
        self._pool.stop()
        if self._clips:
            self._clips.close()
        for host in self._model_hosts:
            host.threads.stop()


def _copied(device: Device) -> Device:
    copy = Device()
    copy.CopyFrom(device)
    return copy


def _streams(device: Device) -> tuple[str | float, ...]:
    """The settings that decide which streams of `device` are opened; ONVIF also chooses by the wanted rates."""
    watched = device.detect_stream if "://" in device.detect_stream else device.source
    rates = (device.fps_target, device.fps_min) if watched.lower().startswith("onvif:") else ()
    return device.source, device.credentials, device.detect_stream, device.record_stream, *rates
