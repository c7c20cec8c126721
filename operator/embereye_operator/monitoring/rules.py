"""Alerts as Prometheus rule files, which the chart's PrometheusRule uses, and as rules for Grafana.

Both formats are translated from ALERTS and RECORDINGS in `alerts.py`, so that they cannot differ. Grafana records no
series, so recorded ones are replaced by their definitions. Alerts detect missing series by their expressions, so for
Grafana "no data" means that nothing is wrong.
"""

import re
from typing import Any

import yaml

from embereye_operator.monitoring.alert import RUNBOOKS, Alert
from embereye_operator.monitoring.alerts import ALERTS, RECORDINGS, expression

INTERVAL = "30s"  # between evaluations
FIRE_INTERVAL = "10s"  # of alerts on fires; Grafana evaluates at most every 10 s
SECONDS = {"s": 1, "m": 60, "h": 3600}


def runbook(alert: Alert, base: str = RUNBOOKS) -> str:
    """Return the address of the alert's page."""
    return f"{base.rstrip('/')}/{alert.name}"


def prometheus_rules() -> dict[str, Any]:
    """Return a rule file, which is also the spec of a PrometheusRule."""
    recordings = [{"record": rule.name, "expr": rule.expression} for rule in RECORDINGS]
    scopes = {"zone": "fires", "fleet": "fleets", "shard": "processes", "release": "release"}
    groups = [{"name": "embereye.recordings", "interval": INTERVAL, "rules": recordings}]
    for scope, name in scopes.items():
        rules = [_prometheus_rule(alert) for alert in ALERTS if alert.scope == scope]
        interval = FIRE_INTERVAL if scope == "zone" else INTERVAL
        groups.append({"name": f"embereye.{name}", "interval": interval, "rules": rules})
    return {"groups": groups}


def _prometheus_rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": expression(alert),
        "for": alert.wait,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": runbook(alert),
        },
    }


def grafana_rules(folder: str = "EmberEye", datasource: str = "prometheus") -> dict[str, Any]:
    """Return a provisioning file for Grafana's alerting: the same expressions on the data source with that uid."""
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": name,
                "folder": folder,
                "interval": interval,
                "rules": [_grafana_rule(alert, datasource) for alert in ALERTS if (alert.scope == "zone") == is_fire],
            }
            for name, interval, is_fire in (
                ("embereye-fires", FIRE_INTERVAL, True),
                ("embereye", INTERVAL, False),
            )
        ],
    }


def _grafana_rule(alert: Alert, datasource: str) -> dict[str, Any]:
    return {
        "uid": re.sub("(?<=[a-z])(?=[A-Z])", "-", alert.name).lower(),
        "title": alert.name,
        "condition": "firing",
        "for": alert.wait,
        # The expression reports its own missing series; otherwise no series means that nothing is wrong.
        "noDataState": "OK",
        "execErrState": "Error",
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": _for_grafana(alert.summary),
            "description": _for_grafana(alert.description),
            "runbook_url": runbook(alert),
        },
        "data": [
            {
                "refId": "value",
                "datasourceUid": datasource,
                "relativeTimeRange": {"from": 600, "to": 0},
                "model": {"refId": "value", "expr": grafana_expression(alert), "instant": True, "range": False},
            },
            {
                "refId": "firing",
                "datasourceUid": "__expr__",
                "model": {
                    "refId": "firing",
                    "type": "math",
                    # Every value that the expression returns fires, even 0.
                    "expression": "is_number($value) || is_nan($value) || is_inf($value)",
                },
            },
        ],
    }


def grafana_expression(alert: Alert) -> str:
    """Return Prometheus' expression with recorded series replaced by their definitions: Grafana records nothing."""
    text = expression(alert)
    for rule in RECORDINGS:
        text = re.sub(rf"{rule.name}\[(\w+)\]", rf"({rule.expression})[\1:1m]", text)
    return text


def _for_grafana(text: str) -> str:
    return text.replace("$value", "$values.value.Value")


def document(value: Any, heading: str) -> str:
    """Return YAML below a comment."""
    return f"# {heading}\n{yaml.safe_dump(value, sort_keys=False, width=1000, allow_unicode=True)}"


def seconds(duration: str) -> int:
    """Convert Prometheus' "90s" or "5m" to seconds."""
    return int(duration[:-1]) * SECONDS[duration[-1]]
