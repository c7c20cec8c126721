"""The metrics of the outputs to the building."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from embereye.process.telemetry.metric import ScrapedCollector, counter, gauge

if TYPE_CHECKING:
    from embereye.addons.modbus.building import Building

FAILING = gauge("embereye_hub_modbus_failing", "1 while a panel cannot be reached or refuses an output.", ("panel",))
WRITES = counter("embereye_hub_modbus_writes_total", "Values written to a panel.", ("panel", "outcome"))
ON = gauge(
    "embereye_hub_modbus_outputs_on", "Coils and registers that are on; panel serve: those that PLCs read.", ("panel",)
)
UNWATCHED = gauge("embereye_hub_modbus_heartbeat_stopped", "1 while heartbeats stop because canaries are overdue.")
READS = counter("embereye_hub_modbus_reads_total", "Requests of PLCs.", ("outcome",))


class ModbusMetrics(ScrapedCollector):
    """Collects the metrics that start with embereye_hub_modbus_; without samples if Modbus is not used."""

    def __init__(self, building: "Building | None") -> None:
        self._building = building

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        building = self._building
        panels = building.panels if building else []
        failing = {panel.options.name: panel.failing for panel in panels}
        if building and building.server:
            failing["serve"] = building.server.failing
        yield FAILING.rows(((name,), float(bool(condition))) for name, condition in failing.items())
        yield WRITES.rows(
            ((panel.options.name, outcome), float(number))
            for panel in panels
            for outcome, number in (("written", panel.written), ("failed", panel.failed))
        )
        yield ON.rows(((name,), float(number)) for name, number in (building.on if building else {}).items())
        yield UNWATCHED.rows([((), float(bool(building.unwatched)))] if building else ())
        server = building.server if building else None
        yield READS.rows(
            [(("answered",), float(server.answered)), (("refused",), float(server.refused))] if server else ()
        )
