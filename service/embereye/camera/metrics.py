"""The metric families of a camera shard, built at scrape time from plain counters.

They are totals over all cameras. Only rates and shed frames are also listed per camera, for a limited number.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from embereye.camera.device.camera import CameraDevice
from embereye.camera.totals import Totals
from embereye.levels import Level
from embereye.process.telemetry.latency import LatencyHistogram
from embereye.process.telemetry.series import ManySeries
from embereye.shard.series import DEVICE_SERIES, over_limit


def frame_metrics(totals: Totals) -> Iterator[Metric]:
    """Yield the counters of frames and the cost of their analysis."""
    ledger = totals.ledger
    yield CounterMetricFamily("embereye_camera_frames_offered", "Frames received.", value=ledger.offered)
    yield CounterMetricFamily(
        "embereye_camera_frames_analysed",
        "Frames analysed, or skipped because their scene is calm.",
        value=ledger.analysed,
    )
    yield CounterMetricFamily(
        "embereye_camera_frames_unread",
        "Frames left with their senders under overload, estimated. They do not count as offered.",
        value=totals.unread,
    )
    yield _by_reason("embereye_camera_frames_shed", "Frames shed, by reason.", ledger.shed)
    yield _by_reason("embereye_camera_frames_rejected", "Unusable frames.", ledger.rejected)
    yield CounterMetricFamily(
        "embereye_camera_analysis_cpu_seconds", "CPU time of decoding and detection.", value=totals.cpu_seconds
    )
    yield CounterMetricFamily(
        "embereye_camera_analysis_failures", "Frames on which a detector failed.", value=totals.failures
    )
    if totals.model_runs is not None:
        yield CounterMetricFamily(
            "embereye_camera_model_runs", "Pictures analysed by the fleet's own model.", value=totals.model_runs
        )
        yield CounterMetricFamily(
            "embereye_camera_model_cpu_seconds", "CPU time of the model.", value=totals.model_seconds
        )


def _by_reason(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["reason"])
    for reason, count in sorted(counts.items()):
        family.add_metric([reason], count)
    return family


def latency_metrics(delays: LatencyHistogram, ages: LatencyHistogram) -> Iterator[Metric]:
    """Yield the histograms of the time until frames are analysed."""
    for name, text, histogram in (
        ("delay", "From a frame's arrival to the end of its analysis.", delays),
        ("age", "From a frame's capture, by its sender's clock, to the end of its analysis.", ages),
    ):
        yield HistogramMetricFamily(
            f"embereye_camera_frame_{name}_seconds", text, buckets=histogram.buckets(), sum_value=histogram.sum
        )


def camera_metrics(cameras: Collection[CameraDevice], now_ns: int) -> Iterator[Metric]:
    """Yield the numbers of cameras by condition at `now_ns`."""
    sources = GaugeMetricFamily("embereye_camera_sources", "Cameras by state of their source.", labels=["state"])
    states = Counter(camera.status.source_state.partition(":")[0].partition(";")[0] for camera in cameras)
    for state, count in sorted(states.items()):
        sources.add_metric([state], count)
    yield sources
    yield GaugeMetricFamily(
        "embereye_camera_suspects",
        "Cameras that suspect fire.",
        value=sum(camera.status.level > Level.CLEAR for camera in cameras),
    )
    yield GaugeMetricFamily(
        "embereye_camera_degraded",
        "Cameras with limited detection.",
        value=sum(bool(camera.status.degraded(now_ns)) for camera in cameras),
    )
    yield GaugeMetricFamily(
        "embereye_camera_record_failing",
        "Cameras whose record stream fails, so that their clips use the detect stream.",
        value=sum(camera.status.is_record_failing for camera in cameras),
    )
    yield GaugeMetricFamily(
        "embereye_camera_slowed",
        "Cameras analysed below their target rate because the shard is overloaded.",
        value=sum(camera.arrivals.mailbox.rate_controller.is_limited for camera in cameras),
    )
    yield from _per_camera(cameras)


def _per_camera(cameras: Collection[CameraDevice]) -> Iterator[Metric]:
    """Yield the rates and shed frames per camera, for a limited number of cameras."""
    rate = ManySeries(
        "embereye_camera_rate_hertz",
        "Frames analysed per second: `in_force` now, `target` without overload, `least` at all times.",
        "gauge",
        ("camera", "zone", "bound"),
    )
    shed = ManySeries(
        "embereye_camera_device_shed", "Frames of one camera that were shed.", "counter", ("camera", "zone")
    )
    for camera in islice(cameras, DEVICE_SERIES):
        labels = camera.device.id, camera.device.zone
        controller = camera.arrivals.mailbox.rate_controller
        for bound, value in (
            ("in_force", controller.rate),
            ("target", controller.target),
            ("least", controller.least),
        ):
            rate.add_metric((*labels, bound), value)
        shed.add_metric(labels, camera.arrivals.mailbox.ledger.shed.total())
    yield rate
    yield shed
    yield from over_limit(len(cameras))
