"""The metrics of live pictures."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.hub.live.viewers import Viewers
from embereye.process.telemetry.metric import counter, gauge

VIEWERS = gauge("embereye_hub_live_viewers", "Live pictures of devices that windows show now.")
BYTES = counter("embereye_hub_live_bytes_total", "Bytes of live pictures that shards sent.")
PICTURES = counter("embereye_hub_live_pictures_total", "Live pictures that shards sent.")
SENT = counter("embereye_hub_live_sent_bytes_total", "Bytes of live pictures sent to windows.")
DROPPED = counter("embereye_hub_live_dropped_total", "Live pictures left out for windows that were too slow.")
REFUSED = counter("embereye_hub_live_refused_total", "Live views refused: beyond a limit, or the shard is overloaded.")


def live_metrics(viewers: Viewers) -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_live_."""
    yield VIEWERS.value(viewers.count)
    yield BYTES.value(viewers.bytes)
    yield PICTURES.value(viewers.pictures)
    yield SENT.value(viewers.sent_bytes)
    yield DROPPED.value(viewers.dropped)
    yield REFUSED.value(viewers.refused)
