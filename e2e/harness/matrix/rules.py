"""Our alert rules in time lapse, and what a Prometheus says of them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from embereye_operator.monitoring.rules import SECONDS, prometheus_rules

CALM = 3  # seconds in a row without a change, before anything begins
LAPSE = 30  # a second of a run stands for so many of a rule's
# What is true, and may fire, while somebody does not run. A dark second stands for half a minute, and burns the budget
# of as much.
DARK = frozenset({"DevicesDark"})
BURNS = frozenset({"CoverageBurnsFast", "CoverageBurnsSlowly"})
SHARD_GONE = DARK | BURNS | {
    "ShardDown", "FleetNotReady", "FleetDegraded", "ScalingBlind", "ScalingStuck", "ShardMetricsMissing",
    "CanaryNotAlarmed", "CanaryNotTold",
}  # fmt: skip
MOVED = frozenset({"ShardDown"})  # whoever went away is scraped for seconds more
HUB_GONE = frozenset({"HubDown", "HubNotReached", "CanaryNotAlarmed", "CanaryNotTold", "FleetDegraded"})
CUT_OFF = frozenset({"HubNotReached", "EvidenceWaiting"})  # a shard there does not reach the hub, or not at first
OPERATOR_GONE = frozenset({"OperatorAbsent", "NoLeader", "FleetNotReconciled"})


def lapsed_rules() -> dict[str, Any]:
    """Our rules, evaluated every second, with all that they wait for and look back on `LAPSE` times shorter."""
    rules = prometheus_rules()
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = re.sub(
                r"(?<=\[)\w+(?=\])|(?<=offset )\w+", lambda found: f"{_lapsed(found[0], 4)}s", rule["expr"]
            )
            if "alert" in rule:
                rule["for"] = f"{_lapsed(rule['for'], 0)}s"
    return rules


def _lapsed(duration: str, least: int) -> int:
    """So many seconds, of "5m"; a rate takes at least two samples, which are a second apart."""
    return max(least, round(int(duration[:-1]) * SECONDS[duration[-1]] / LAPSE))


class Standing:
    """Which alerts fire before anything is done to a site: the machine's own, such as for its disk."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._same = 0

    def settled(self, alerts: Mapping[str, str]) -> bool:
        """Whether `alerts`, asked for once a second, are those that fire and have been for a while."""
        firing = frozenset(name for name, state in alerts.items() if state == "firing")
        self._same = self._same + 1 if firing == self.names and len(alerts) == len(firing) else 0
        self.names = firing
        return self._same >= CALM + 2 * bool(firing) * CALM

    def without(self, alerts: Mapping[str, str]) -> dict[str, str]:
        """`alerts`, but for those."""
        return {name: state for name, state in alerts.items() if name not in self.names}


def states(alerts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By name, of what Prometheus lists: whether one of that name fires, or is about to."""
    found: dict[str, str] = {}
    for alert in alerts:
        name = alert["labels"]["alertname"]
        found[name] = "firing" if "firing" in (alert["state"], found.get(name)) else alert["state"]
    return found


def labels(alerts: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """By name, of what Prometheus lists: the labels of each, as PromQL writes them."""
    found: dict[str, list[str]] = {}
    for alert in alerts:
        own = ", ".join(f'{name}="{value}"' for name, value in alert["labels"].items() if name != "alertname")
        found.setdefault(alert["labels"]["alertname"], []).append(f"{{{own}}} {alert['state']}")
    return found
