"""The metric families of a camera shard, built at scrape time from plain counters.

They are totals over all cameras, but for the rate and the loss of each, up to a number of cameras.
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
    """What became of frames, and what their analysis took."""
    ledger = totals.ledger
    yield CounterMetricFamily("embereye_camera_frames_offered", "Frames received.", value=ledger.offered)
    yield CounterMetricFamily(
        "embereye_camera_frames_analysed",
        "Frames analysed, and those of calm scenes that needed no look.",
        value=ledger.analysed,
    )
    yield CounterMetricFamily(
        "embereye_camera_frames_unread",
        "Frames left with their senders under overload, as far as can be told. They are not offered.",
        value=totals.unread,
    )
    yield _by_reason("embereye_camera_frames_shed", "Frames given up, by reason.", ledger.shed)
    yield _by_reason("embereye_camera_frames_rejected", "Unusable frames.", ledger.rejected)
    yield CounterMetricFamily(
        "embereye_camera_analysis_cpu_seconds", "CPU time of decoding and detection.", value=totals.cpu_seconds
    )
    yield CounterMetricFamily(
        "embereye_camera_analysis_failures", "Frames on which a detector failed.", value=totals.failures
    )
    if totals.model_runs is not None:
        yield CounterMetricFamily(
            "embereye_camera_model_runs", "Pictures that the model looked at.", value=totals.model_runs
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
    """How long frames took to be analysed."""
    for name, text, histogram in (
        ("delay", "From a frame's arrival to the end of its analysis.", delays),
        ("age", "From a frame's capture, as its sender tells it, to the end of its analysis.", ages),
    ):
        yield HistogramMetricFamily(
            f"embereye_camera_frame_{name}_seconds", text, buckets=histogram.buckets(), sum_value=histogram.sum
        )


def camera_metrics(cameras: Collection[CameraDevice], now_ns: int) -> Iterator[Metric]:
    """How many cameras are in which condition at `now_ns`."""
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
        "Cameras in which less is detected than was asked for.",
        value=sum(bool(camera.status.degraded(now_ns)) for camera in cameras),
    )
    yield GaugeMetricFamily(
        "embereye_camera_record_failing",
        "Cameras whose stream to record does not come: their clips are of the stream that is looked at.",
        value=sum(camera.status.is_record_failing for camera in cameras),
    )
    yield GaugeMetricFamily(
        "embereye_camera_slowed",
        "Cameras that are looked at less often than they are to be, because the shard does not keep up.",
        value=sum(camera.arrivals.mailbox.rate_controller.limited for camera in cameras),
    )
    yield from _each(cameras)


def _each(cameras: Collection[CameraDevice]) -> Iterator[Metric]:
    """The rate in force and the frames given up of each camera, up to a number of cameras."""
    rate = ManySeries(
        "embereye_camera_rate_hertz",
        "Frames per second that are looked at: `in_force` now, `target` where nothing is short, `least` at all times.",
        "gauge",
        ("camera", "zone", "bound"),
    )
    shed = ManySeries(
        "embereye_camera_device_shed", "Frames of one camera that were given up.", "counter", ("camera", "zone")
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
