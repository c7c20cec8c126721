"""Dashboards in Grafana's format, built with its typed SDK, which is installed for development only.

`make monitoring` renders each dashboard of `panels.py` into a JSON file of the chart; `embereye dashboards` writes the
same into any folder. This module only translates: queries, units and texts are data in `panels.py`, and each panel
links to the runbook of its alert in `alerts.py`. Stable uids and sorted keys make equal dashboards equal files.
"""

import itertools
import json
from typing import Any

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from embereye_operator.monitoring.alert import FLEET, ZONE
from embereye_operator.monitoring.alerts import BY_NAME
from embereye_operator.monitoring.panel import C, Dashboard, Panel
from embereye_operator.monitoring.panels import F
from embereye_operator.monitoring.rules import runbook

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
COLORED = {"type": "color-background", "mode": "basic"}
HEIGHT = {"stat": 5, "timeseries": 8, "table": 8}
VARIABLES = {
    "cluster": ("cluster", "Cluster", "label_values(embereye_fleet_shards, cluster)"),
    "namespace": ("namespace", "Namespace", f"label_values(embereye_fleet_shards{{{C}}}, namespace)"),
    "fleet": ("fleet", "Fleet", f'label_values(embereye_fleet_shards{{{C},namespace=~"$namespace"}}, fleet)'),
    "sensor shard": ("shard", "Shard", f'label_values(embereye_shard_epoch{{{F},kind="sensors"}}, shard)'),
    "camera shard": ("shard", "Shard", f'label_values(embereye_shard_epoch{{{F},kind="cameras"}}, shard)'),
}


def uid(source: Dashboard) -> str:
    """Return a stable id, so that links to the dashboard stay valid."""
    return f"embereye-{source.name}"


def render(source: Dashboard) -> str:
    """Return the dashboard's JSON."""
    built = json.loads(json.dumps(_dashboard(source).build(), cls=JSONEncoder))
    for variable in built["templating"]["list"]:
        # The SDK writes fields of interval variables for every variable.
        for name in ("auto", "auto_count", "auto_min"):
            del variable[name]
    return json.dumps(built, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _dashboard(source: Dashboard) -> dashboard.Dashboard:
    builder = (
        dashboard.Dashboard(source.title)
        .uid(uid(source))
        .description(source.description)
        .tags(["embereye"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .link(dashboard.DashboardLink("EmberEye").type(DashboardLinkType.DASHBOARDS).tags(["embereye"])
              .as_dropdown(True).keep_time(True).include_vars(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )  # fmt: skip
    for name in ("cluster", *source.variables):
        builder = builder.with_variable(_variable(*VARIABLES[name]))
    if source.fires:
        expression = f'max by ({ZONE}) (embereye_hub_zone_active{{{C},state="alarm"}})'
        builder = builder.annotation(_annotation("Fire alarms", "red", expression))
    if source.scaling:
        expression = f"max by ({FLEET}) (changes(embereye_fleet_shards{{{F}}}[2m])) > 0"
        builder = builder.annotation(_annotation("Number of shards changed", "purple", expression))
    numbers = itertools.count(1)
    for row in source.rows:
        builder = builder.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            builder = builder.with_panel(_panel(panel).id(next(numbers)))
    return builder


def _annotation(name: str, color: str, expression: str) -> dashboard.AnnotationQuery:
    return dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(color).expr(expression)


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        # Series without the label are shown, too.
        .all_value(".*")
    )


def _panel(panel: Panel) -> Any:
    builder: Any
    match panel.form:
        case "stat":
            builder = stat.Panel().color_mode(BigValueColorMode.BACKGROUND_SOLID)
        case "table":
            builder = table.Panel()
        case _:
            builder = timeseries.Panel().fill_opacity(10).line_width(1)
    alert = BY_NAME[panel.alert]
    builder = (
        builder.title(panel.title)
        .description(f"{panel.description} Alert and runbook: [{alert.name}]({runbook(alert)}).")
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(panel.width)
        .height(HEIGHT[panel.form])
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(_thresholds(panel)))
        .links([dashboard.DashboardLink(f"Runbook {alert.name}").type(DashboardLinkType.LINK).url(runbook(alert))
                .target_blank(True)])
    )  # fmt: skip
    if panel.words:
        options = {
            str(value): ValueMappingResult(text=text, color=color, index=value)
            for value, (text, color) in enumerate(panel.words)
        }
        builder = builder.mappings([ValueMap(options=options)])
    if panel.words and panel.form == "table":
        # The color of the value's cell.
        builder = builder.override_by_name("Value", [DynamicConfigValue(id_val="custom.cellOptions", value=COLORED)])
    for number, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expression).ref_id(chr(ord("A") + number))
        if query.legend:
            target = target.legend_format(query.legend)
        if panel.form != "timeseries":
            target = target.instant()
        if panel.form == "table":
            target = target.format(PromQueryFormat.TABLE)
        builder = builder.with_target(target)
    return builder


def _thresholds(panel: Panel) -> list[Threshold]:
    warning, critical = panel.warning, panel.critical
    if warning is not None and critical is not None and critical < warning:  # lower values are worse
        return [
            Threshold(value=None, color="red"),
            Threshold(value=critical, color="orange"),
            Threshold(value=warning, color="green"),
        ]
    steps = [Threshold(value=None, color="green")]
    if warning is not None and warning != critical:
        steps.append(Threshold(value=warning, color="orange"))
    if critical is not None:
        steps.append(Threshold(value=critical, color="red"))
    return steps
