"""The metric families of a camera shard, built at scrape time from plain counters.

They are totals over all cameras. Only rates and shed frames are also listed per camera, for a limited number.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice

from prometheus_client.core import Metric

from embereye.camera.decode.pool import DecoderPool
from embereye.camera.device.camera import CameraDevice
from embereye.camera.live import LivePictures
from embereye.camera.scheduling.pool_budget import PoolLoad
from embereye.camera.totals import Totals
from embereye.levels import Level
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.telemetry.metric import counter, gauge, histogram
from embereye.shard.series import DEVICE_SERIES, over_limit

DEVICE = ("camera", "zone")  # labels of a camera's series
WITH_MODEL = "spec.detection.model is set"
OFFERED = counter("embereye_camera_frames_offered_total", "Frames received.")
ANALYSED = counter("embereye_camera_frames_analysed_total", "Frames analysed, or skipped because their scene is calm.")
UNREAD = counter(
    "embereye_camera_frames_unread_total",
    "Frames left with their senders under overload, estimated. They do not count as offered.",
)
SHED = counter("embereye_camera_frames_shed_total", "Frames shed, by reason.", ["reason"])
REJECTED = counter("embereye_camera_frames_rejected_total", "Unusable frames.", ["reason"])
CPU = counter("embereye_camera_analysis_cpu_seconds_total", "CPU time of decoding and detection.")
FAILURES = counter("embereye_camera_analysis_failures_total", "Frames on which a detector failed.")
MODEL_RUNS = counter(
    "embereye_camera_model_runs_total", "Pictures analysed by the fleet's own model.", only_where=WITH_MODEL
)
MODEL_CPU = counter("embereye_camera_model_cpu_seconds_total", "CPU time of the model.", only_where=WITH_MODEL)
DELAY = histogram("embereye_camera_frame_delay_seconds", "From a frame's arrival to the end of its analysis.")
AGE = histogram(
    "embereye_camera_frame_age_seconds", "From a frame's capture, by its sender's clock, to the end of its analysis."
)
SOURCES = gauge("embereye_camera_sources", "Cameras by state of their source.", ["state"])
SUSPECTS = gauge("embereye_camera_suspects", "Cameras that suspect fire.")
CALM = gauge(
    "embereye_camera_calm", "Cameras of which only key frames, or two pictures a second, are decoded: nothing happens."
)
DEGRADED = gauge("embereye_camera_degraded", "Cameras with limited detection.")
RECORD_FAILING = gauge(
    "embereye_camera_record_failing", "Cameras whose record stream fails, so that their clips use the detect stream."
)
SLOWED = gauge("embereye_camera_slowed", "Cameras analysed below their target rate because the shard is overloaded.")
RATE = gauge(
    "embereye_camera_rate_hertz",
    "Frames analysed per second: `in_force` now, `target` without overload, `least` at all times.",
    (*DEVICE, "bound"),
)
DEVICE_SHED = counter("embereye_camera_device_shed_total", "Frames of one camera that were shed.", DEVICE)
PUSH_STREAMS = gauge("embereye_camera_push_streams", "Open push streams.")
REFUSED = gauge("embereye_camera_refused", "Cameras refused because decoding capacity is missing.")
DECODERS = gauge("embereye_camera_decoders", "Decoder processes.")
DECODERS_DIED = counter("embereye_camera_decoders_died_total", "Decoder processes that ended and were replaced.")
DECODERS_BUSY = gauge(
    "embereye_camera_decoders_busy_ratio", "Share of the last half second in which the decoders worked."
)
LOOP_BUSY = gauge(
    "embereye_camera_loop_busy_ratio",
    "Share of the last half second in which the event loop ran or waited for a CPU.",
)
LIVE_CAMERAS = gauge("embereye_camera_live_cameras", "Cameras whose live pictures or video the shard sends to the hub.")
LIVE_BYTES = counter("embereye_camera_live_bytes_total", "Bytes of live pictures and videos sent to the hub.")
LIVE_DROPPED = counter(
    "embereye_camera_live_dropped_total", "Live pictures and parts of videos dropped because the hub was slow."
)
FRAMES_WAITING = gauge("embereye_camera_frames_waiting", "Frames that wait for a decoder.")
FRAMES_IN_WORK = gauge("embereye_camera_frames_in_work", "Frames being decoded or analysed.")


def frame_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield the counters of frames and the cost of their analysis."""
    ledger = totals.ledger
    yield OFFERED.value(ledger.offered)
    yield ANALYSED.value(ledger.analysed)
    yield UNREAD.value(totals.unread)
    yield SHED.counts(ledger.shed)
    yield REJECTED.counts(ledger.rejected)
    yield CPU.value(totals.cpu_seconds)
    yield FAILURES.value(totals.failures)
    if totals.model_runs is not None:
        yield MODEL_RUNS.value(totals.model_runs)
        yield MODEL_CPU.value(totals.model_seconds)


def latency_metrics(delays: LatencyHistogram, ages: LatencyHistogram) -> Iterator[Metric]:
    """Yield the histograms of the time until frames are analysed."""
    yield DELAY.histograms([((), delays)])
    yield AGE.histograms([((), ages)])


def camera_metrics(cameras: Collection[CameraDevice], now_ns: int) -> Iterator[Metric]:
    """Yield the numbers of cameras by condition at `now_ns`."""
    yield SOURCES.counts(Counter(camera.status.source_state.partition(":")[0].partition(";")[0] for camera in cameras))
    yield SUSPECTS.value(sum(camera.status.level > Level.CLEAR for camera in cameras))
    yield CALM.value(sum(camera.arrivals.calm.is_calm for camera in cameras))
    yield DEGRADED.value(sum(bool(camera.status.degraded(now_ns)) for camera in cameras))
    yield RECORD_FAILING.value(sum(camera.status.is_record_failing for camera in cameras))
    yield SLOWED.value(sum(camera.arrivals.mailbox.rate_controller.is_limited for camera in cameras))
    yield from _per_camera(cameras)


def decoder_metrics(pool: DecoderPool, load: PoolLoad) -> Iterator[Metric]:
    """Yield the state of the decoders, and how busy they and the event loop are."""
    yield DECODERS.value(pool.count)
    yield DECODERS_DIED.value(pool.died)
    yield DECODERS_BUSY.value(load.decoders_busy)
    yield LOOP_BUSY.value(load.loop_busy)
    yield FRAMES_WAITING.value(pool.waiting)
    yield FRAMES_IN_WORK.value(pool.in_work)


def live_metrics(live: LivePictures) -> Iterator[Metric]:
    """Yield what is sent to people who look at cameras."""
    yield LIVE_CAMERAS.value(live.shown)
    yield LIVE_BYTES.value(live.sent_bytes)
    yield LIVE_DROPPED.value(live.dropped)


def _per_camera(cameras: Collection[CameraDevice]) -> Iterator[Metric]:
    """Yield the rates and shed frames per camera, for a limited number of cameras."""
    rate, shed = RATE.rows(), DEVICE_SHED.rows()
    for camera in islice(cameras, DEVICE_SERIES):
        labels = camera.device.id, camera.device.zone
        controller = camera.arrivals.mailbox.rate_controller
        for bound, value in (
            ("in_force", camera.arrivals.rate_in_force),
            ("target", controller.target),
            ("least", controller.least),
        ):
            rate.add_metric((*labels, bound), value)
        shed.add_metric(labels, camera.arrivals.mailbox.ledger.shed.total())
    yield rate
    yield shed
    yield from over_limit(len(cameras))
