"""The state of hardware decoding in a shard, and the warning if videos are decoded in software instead."""

import logging
from collections.abc import Iterator

from prometheus_client.core import Metric

from embereye.camera.decode.hardware import unusable_reason
from embereye.process.telemetry.metric import gauge

logger = logging.getLogger(__name__)

DECODING = gauge(
    "embereye_camera_hardware_decoding",
    "1 if videos are decoded by the requested hardware, 0 if in software.",
    ["kind"],
    only_where="spec.decoding.hardware is set",
)


class HardwareDecoding:
    """The state in one shard; `kind` is the requested hardware, empty: software."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._reason: str | None = None  # why it cannot be used; empty: it can; None: not known yet

    async def find(self) -> None:
        """Test whether the requested hardware works."""
        if not self._kind:
            return
        self._reason = await unusable_reason(self._kind)
        if self._reason:
            logger.warning("%s", self.degraded)
        else:
            logger.info("videos are decoded by %s", self._kind)

    @property
    def degraded(self) -> str:
        """The reason why videos are decoded in software although hardware was requested, or ''."""
        return f"decoded in software instead of {self._kind}: {self._reason}" if self._reason else ""

    def metrics(self) -> Iterator[Metric]:
        """Yield the gauge if hardware was requested."""
        if not self._kind or self._reason is None:
            return
        yield DECODING.value(not self._reason, self._kind)
