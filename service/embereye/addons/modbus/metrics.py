"""The metrics of the outputs to the building."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import counter, gauge

if TYPE_CHECKING:
    from embereye.addons.modbus.building import Building

FAILING = gauge("embereye_hub_modbus_failing", "1 while a panel cannot be reached or refuses an output.", ("panel",))
WRITES = counter("embereye_hub_modbus_writes_total", "Values written to a panel.", ("panel", "outcome"))
ON = gauge(
    "embereye_hub_modbus_outputs_on", "Coils and registers that are on; panel serve: those that PLCs read.", ("panel",)
)
UNWATCHED = gauge("embereye_hub_modbus_heartbeat_stopped", "1 while heartbeats stop because canaries are overdue.")
READS = counter("embereye_hub_modbus_reads_total", "Requests of PLCs.", ("outcome",))


def modbus_metrics(building: "Building") -> Iterator[Metric]:
    """Yield the metrics that start with embereye_hub_modbus_."""
    panels, server = building.panels, building.server
    failing = {panel.options.name: bool(panel.failing) for panel in panels}
    if server:
        failing["serve"] = bool(server.failing)
    yield FAILING.rows(((name,), float(is_failing)) for name, is_failing in failing.items())
    yield WRITES.rows(
        ((panel.options.name, outcome), float(number))
        for panel in panels
        for outcome, number in (("written", panel.written), ("failed", panel.failed))
    )
    yield ON.rows(((name,), float(number)) for name, number in building.on.items())
    yield UNWATCHED.value(bool(building.unwatched))
    yield READS.counts({"answered": server.answered, "refused": server.refused} if server else {})
