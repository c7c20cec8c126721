"""The files that are generated from this package; run the module to write them."""

from collections.abc import Mapping
from pathlib import Path

from embereye_operator.api.files import write
from embereye_operator.monitoring import metrics, rules
from embereye_operator.monitoring.panels import DASHBOARDS

HEADING = "Made by `make monitoring` from operator/embereye_operator/monitoring/alerts.py."


def generated() -> Mapping[Path, str]:
    """Return the content of every file by its path in the checkout."""
    # The SDK is installed for development only; alerts and metrics do not need it.
    from embereye_operator.monitoring.grafana import render

    chart = Path("charts/embereye/files")
    return {
        Path("docs/reference/metrics.md"): metrics.page(),
        chart / "rules/prometheus.yaml": rules.document(rules.prometheus_rules(), HEADING),
        chart / "rules/grafana.yaml": rules.document(rules.grafana_rules(), HEADING),
        **{chart / f"dashboards/{source.name}.json": render(source) for source in DASHBOARDS},
    }


if __name__ == "__main__":
    write(generated())
