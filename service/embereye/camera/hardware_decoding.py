"""Whether a shard's videos are decoded by the hardware that was asked for, and what is told where they are not."""

import logging
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from embereye.camera.decode.hardware import unusable_reason

logger = logging.getLogger(__name__)


class HardwareDecoding:
    """One per shard; `kind` is what was asked for, empty: software. `find` finds out."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._reason: str | None = None  # why it cannot be had; empty: it can; None: not known yet

    async def find(self) -> None:
        """Find out whether it can be had."""
        if not self._kind:
            return
        self._reason = await unusable_reason(self._kind)
        if self._reason:
            logger.warning("%s", self.degraded)
        else:
            logger.info("videos are decoded by %s", self._kind)

    @property
    def degraded(self) -> str:
        """Why videos are decoded by software although hardware was asked for; empty: they are not."""
        return f"decoded by software, not by {self._kind}: {self._reason}" if self._reason else ""

    def metrics(self) -> Iterator[Metric]:
        """Nothing where hardware was not asked for."""
        if not self._kind or self._reason is None:
            return
        decoding = GaugeMetricFamily(
            "embereye_camera_hardware_decoding",
            "1 where videos are decoded by the hardware that was asked for, 0 where by software.",
            labels=["kind"],
        )
        decoding.add_metric([self._kind], int(not self._reason))
        yield decoding
