"""Our alert rules in time lapse, and the alerts that Prometheus reports for them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from embereye_operator.monitoring.rules import SECONDS, prometheus_rules

CALM = 3  # seconds without a change before a fault starts
LAPSE = 30  # factor by which rules run faster: one second of a run counts as 30
# Alerts that may fire while a process is down, because they are true. A dark second counts as half a minute, and uses
# that much of the budget.
DARK = frozenset({"DevicesDark"})
BURNS = frozenset({"CoverageBurnsFast", "CoverageBurnsSlowly"})
SHARD_GONE = DARK | BURNS | {
    "ShardDown", "FleetNotReady", "FleetDegraded", "ScalingBlind", "ScalingStuck", "ShardMetricsMissing",
    "CanaryNotAlarmed", "CanaryNotTold",
}  # fmt: skip
SLOW = frozenset({"EventLoopSlow"})  # fire on a machine that is slow itself
# Fire while the machine has too little CPU for all frames and readings, or a shard needs seconds to reach its hub.
STARVED = SLOW | {"CamerasShedding", "Compacting", "FramesOld", "HubNotReached"}
MOVED = frozenset({"ShardDown"})  # a removed shard is scraped for some more seconds
HUB_GONE = frozenset({"HubDown", "HubNotReached", "CanaryNotAlarmed", "CanaryNotTold", "FleetDegraded"})
CUT_OFF = frozenset({"HubNotReached", "EvidenceWaiting"})  # a shard does not reach the hub, or only later
OPERATOR_GONE = frozenset({"OperatorAbsent", "NoLeader", "FleetNotReconciled"})
NODE_GONE = SHARD_GONE | HUB_GONE | OPERATOR_GONE | CUT_OFF  # of two hubs one may be on any node


def lapsed_rules() -> dict[str, Any]:
    """Our rules without those of fires, evaluated every second, with waits and ranges shortened by `LAPSE`."""
    rules = prometheus_rules()
    rules["groups"] = [group for group in rules["groups"] if group["name"] != "embereye.fires"]
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = re.sub(
                r"(?<=\[)\w+(?=\])|(?<=offset )\w+", lambda match: f"{_lapsed(match[0], 4)}s", rule["expr"]
            )
            if "alert" in rule:
                rule["for"] = f"{_lapsed(rule['for'], 0)}s"
    return rules


def _lapsed(duration: str, least: int) -> int:
    """The shortened duration in seconds, at least `least`: a rate needs two samples, one second apart."""
    return max(least, round(int(duration[:-1]) * SECONDS[duration[-1]] / LAPSE))


class BaselineAlerts:
    """The alerts that fire before any fault, caused by the machine, such as a full disk."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._same = 0

    def update(self, alerts: Mapping[str, str]) -> bool:
        """Learn from `alerts`, polled once a second. Returns True once they have been stable for a while."""
        firing = frozenset(name for name, state in alerts.items() if state == "firing")
        self._same = self._same + 1 if firing == self.names and len(alerts) == len(firing) else 0
        self.names = firing
        return self._same >= CALM + 2 * bool(firing) * CALM

    def without(self, alerts: Mapping[str, str]) -> dict[str, str]:
        """The `alerts` that are not in the baseline."""
        return {name: state for name, state in alerts.items() if name not in self.names}


def states(alerts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Alert name → "firing" if any alert of that name fires, else its state."""
    result: dict[str, str] = {}
    for alert in alerts:
        name = alert["labels"]["alertname"]
        result[name] = "firing" if "firing" in (alert["state"], result.get(name)) else alert["state"]
    return result


def labels(alerts: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Alert name → the labels of each of its alerts, in PromQL's form."""
    result: dict[str, list[str]] = {}
    for alert in alerts:
        pairs = ", ".join(f'{name}="{value}"' for name, value in alert["labels"].items() if name != "alertname")
        result.setdefault(alert["labels"]["alertname"], []).append(f"{{{pairs}}} {alert['state']}")
    return result
