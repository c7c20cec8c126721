"""Write Grafana dashboards and alert rules as files, for installations without the Helm chart."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process.files import system_errors
from embereye.process.lifecycle import UserError
from embereye_operator.monitoring import rules
from embereye_operator.monitoring.panels import DASHBOARDS


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--datasource", default="prometheus", metavar="UID",
                        help="data source of Grafana's alerts (%(default)s)")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Write every file; return the exit code."""
    try:
        from embereye_operator.monitoring.grafana import render
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("grafana_foundation_sdk"):
            raise
        raise UserError("Grafana's SDK is not installed: pip install 'embereye[dashboards]'") from error
    files = {f"dashboards/{source.name}.json": render(source) for source in DASHBOARDS}
    heading = "Made by `embereye dashboards render`."
    files["prometheus-rules.yaml"] = rules.document(rules.prometheus_rules(), heading)
    files["grafana-alerts.yaml"] = rules.document(rules.grafana_rules(datasource=arguments.datasource), heading)
    with system_errors(f"--to {arguments.to} cannot be written"):
        for name, text in files.items():
            (arguments.to / name).parent.mkdir(parents=True, exist_ok=True)
            (arguments.to / name).write_text(text, encoding="utf-8")
    print(f"{len(DASHBOARDS)} dashboards, rules for Prometheus and alerts for Grafana are in {arguments.to}")
    return 0
