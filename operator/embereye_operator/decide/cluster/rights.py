"""The operator's rights in a namespace, compared with those that it needs there.

`Rights` asks the API server periodically for the granted rules, and `missing_rights` compares them with the table
NEEDED. A rule for named objects only does not count. The answer becomes the problem RightsMissing in the status of
fleets in that namespace.
"""

from collections.abc import Mapping, Sequence
from typing import Any

GROUP = "embereye.dev"
ALL = ("list", "watch", "create", "patch", "delete")
UNWATCHED = ("list", "create", "patch", "delete")
# API group, resource, verbs. Kinds of other projects are left out: clusters without them may lack the rights, too.
NEEDED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (GROUP, "sensorfleets", ("list", "watch")),
    (GROUP, "camerafleets", ("list", "watch")),
    (GROUP, "sensorfleets/status", ("patch",)),
    (GROUP, "camerafleets/status", ("patch",)),
    (GROUP, "sensorfleets/scale", ("patch",)),
    (GROUP, "camerafleets/scale", ("patch",)),
    ("apps", "deployments", ALL),
    ("", "services", ALL),
    ("", "configmaps", ("get", *ALL)),
    ("policy", "poddisruptionbudgets", ALL),
    ("networking.k8s.io", "networkpolicies", UNWATCHED),
    ("autoscaling", "horizontalpodautoscalers", UNWATCHED),
    ("", "secrets", UNWATCHED),
    ("", "events", ("create", "patch")),
)


def missing_rights(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each needed right that `rules` of a SelfSubjectRulesReview do not grant, as "list and watch services"."""
    missing = []
    for group, resource, verbs in NEEDED:
        if refused := [verb for verb in verbs if not any(_grants(rule, group, resource, verb) for rule in rules)]:
            *others, last = refused
            words = f"{', '.join(others)} and {last}" if others else last
            missing.append(f"{words} {resource}")
    return missing


def _grants(rule: Mapping[str, Any], group: str, resource: str, verb: str) -> bool:
    return (
        not rule.get("resourceNames")
        and not {group, "*"}.isdisjoint(rule.get("apiGroups") or ())
        and not {resource, "*"}.isdisjoint(rule.get("resources") or ())
        and not {verb, "*"}.isdisjoint(rule.get("verbs") or ())
    )
