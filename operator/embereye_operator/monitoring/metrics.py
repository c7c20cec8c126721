"""Every exported metric, collected from the modules that declare it; the source of docs/reference/metrics.md.

A metric is declared once, where it is measured, and the declaration registers it. `metrics` imports all modules to find
them. The page of the documentation, and checks of alerts and dashboards, use this list, so no query can name a series
that no process exports.
"""

import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module

import embereye
import embereye_operator.monitoring.fleets  # noqa: F401 # it declares the operator's
from embereye.process.addons import addon_modules
from embereye.process.telemetry.metric import CAMERA, DECLARED, EVERYBODY, HUB, OPERATOR, SENSOR, SHARDS, Metric

TARGET = ("job", "instance")  # labels that Prometheus adds to every series
WITHOUT_METRICS = ("embereye.v1", "embereye.sim", "embereye.wire", "embereye.detect", "embereye.addons")


@cache
def metrics() -> tuple[Metric, ...]:
    """Import all of the service and the metrics of its add-ons, and return every metric, by name."""
    for module in pkgutil.walk_packages(embereye.__path__, "embereye."):
        if not module.name.startswith(WITHOUT_METRICS):
            import_module(module.name)
    list(addon_modules("metrics"))
    return tuple(sorted(DECLARED.values(), key=lambda metric: metric.name))


def by_series() -> dict[str, Metric]:
    """Return every metric by the names of its series."""
    return {series: metric for metric in metrics() for series in metric.series}


LABELS = {
    "namespace": "the fleet's",
    "kind": "`sensors` or `cameras`; for `embereye_operator_writes_total`: the object's kind",
    "changed": "`true`, `false`",
    "fleet": "its name; for `embereye_hub_packets_total`: NAMESPACE/KIND/NAME",
    "shard": "its name",
    "condition": "`Ready`, `Progressing`, `Degraded`, `Covered`, `Reachable`, `ScalingActive`, `MetricsAvailable`",
    "device": "its id, as declared",
    "camera": "its id, as declared",
    "zone": "as declared",
    "ports": "`control`: ports for EmberEye's processes; `open`: ports for devices or people",
    "reason": "a few words from a fixed set",
    "outcome": "`offered`, `analysed`, `duplicate`, `shed`, `rejected`; for the archive: `written`, `dropped`; for a "
    "webhook or a route: `delivered`, `failed`; for readings by HTTP: `read`, `failed`",
    "status": "the code of HTTP",
    "webhook": "its name, as declared",
    "station": "its name, as declared",
    "receiver": "HOST:PORT, as declared",
    "panel": "its name, as declared; `serve`: the table that PLCs read",
    "route": "its name, as declared",
    "duty": "its name, as declared",
    "profile": "its name, as declared",
    "test": "its name, as declared",
    "backup": "the FleetBackup's name",
    "stage": "`wait`, `analyse`",
    "sign": "`heat`, `smoke`, `gas`, `flame`, `unknown`",
    "state": "for a zone: `normal`, `pre_alarm`, `alarm`, `acknowledged`, …; for a source: `streaming`, …",
    "type": "`state`, `fault`, `fault_cleared`, `test`, `evidence`",
    "actuator": "an actuator that the hub steers by rules",
    "bound": "`in_force`, `target`, `least`",
    "level": "`pre-alarm`, `alarm`",
    "which": "`inForce`, `candidate`: the side that raised it",
    "version": "EmberEye's version",
}


INTRODUCTION = """\
# Metrics

The operator, the hub and every shard serve these metrics at `/metrics`. [grafana.md](../how-to/grafana.md) describes
how Prometheus gets them. `make monitoring` writes this page from the registry that alerts and dashboards use.

Units are base units. A name that ends in `_total` is a counter: it only grows, until its process restarts. A histogram
has `_bucket`, `_sum` and `_count`, a summary `_sum` and `_count`.

A shard's series have no name of the shard. Scraping adds `namespace`, `kind`, `fleet` and `shard`, so that they can be
compared with the operator's series about the fleet. Only the first 1,000 devices of a shard have series with a `device`
or `camera` label; `embereye_shard_devices_without_series` counts the others.
"""


def page() -> str:
    """Return the content of docs/reference/metrics.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION.rstrip()
    for title, exporters in (
        ("Fleets, by the operator", (OPERATOR,)),
        ("Every shard", SHARDS),
        ("Sensor shards", (SENSOR,)),
        ("Camera shards", (CAMERA,)),
        ("The hub", (HUB,)),
        ("Every process", EVERYBODY),
    ):
        yield ""
        yield f"## {title}"
        yield "| metric | type | unit | labels | meaning |"
        yield "| --- | --- | --- | --- | --- |"
        yield from _rows([metric for metric in metrics() if metric.exporters == exporters])
    yield ""
    yield "## Labels"
    yield "| label | values |"
    yield "| --- | --- |"
    for label, text in LABELS.items():
        yield f"| `{label}` | {text} |"


def _rows(listed: Sequence[Metric]) -> Iterator[str]:
    for metric in listed:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        text = metric.help + (f" Only where {metric.only_where}." if metric.only_where else "")
        yield f"| `{metric.name}` | {metric.type} | {metric.unit} | {labels} | {text} |"
