"""Our alert rules in time lapse, and what a Prometheus says of them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from embereye_operator.monitoring.rules import SECONDS, prometheus_rules

CALM = 3  # seconds in a row without an alert, before anything begins
LAPSE = 30  # a second of a run stands for so many of a rule's


def lapsed_rules() -> dict[str, Any]:
    """Our rules, evaluated every second, with all that they wait for and look back on `LAPSE` times shorter."""
    rules = prometheus_rules()
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[(\w+)\]", lambda found: f"[{_lapsed(found[1], 4)}s]", rule["expr"])
            if "alert" in rule:
                rule["for"] = f"{_lapsed(rule['for'], 0)}s"
    return rules


def _lapsed(duration: str, least: int) -> int:
    """So many seconds, of "5m"; a rate takes at least two samples, which are a second apart."""
    return max(least, round(int(duration[:-1]) * SECONDS[duration[-1]] / LAPSE))


def states(alerts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By name, of what Prometheus lists: whether one of that name fires, or is about to."""
    found: dict[str, str] = {}
    for alert in alerts:
        name = alert["labels"]["alertname"]
        found[name] = "firing" if "firing" in (alert["state"], found.get(name)) else alert["state"]
    return found
