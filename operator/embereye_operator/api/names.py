"""Names, labels and owners of a fleet's children.

All names derive from the fleet's name and kind and the shard's index, so any process can compute them without a lookup.
The label LABEL_FLEET finds a fleet's children and pods, and owner references delete them with the fleet. Names,
selectors and labels are part of existing objects, so they must not change.
"""

import re

from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION

MANAGED_BY = "embereye-operator"  # also the field manager
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_FLEET = "embereye.dev/fleet"  # value: see FleetNames.label
LABEL_SHARD = "embereye.dev/shard"


def identity_name(shard: str) -> str:
    """Return the name of the Secret with a shard's certificate."""
    return f"{shard}-identity"


class FleetNames:
    """The names of a fleet's children, computed once for each fleet that is read."""

    __slots__ = ("_component", "_name", "_namespace", "_owner", "fleet", "label", "placement")

    def __init__(self, resource: str, kind: str, component: str, namespace: str, name: str, uid: str) -> None:
        """`resource`, `kind` and `component` are as in FleetType."""
        self.fleet = f"{name}-{kind}"  # of the objects that a fleet has once: `hall-sensors`
        self.placement = f"{self.fleet}-placement"  # of the placement ConfigMap
        self.label = f"{kind}.{name}"  # the value of LABEL_FLEET; it is unique within a namespace
        self._component, self._name, self._namespace = component, name, namespace
        self._owner = {
            "apiVersion": API_VERSION,
            "kind": resource,
            "name": name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def shard(self, index: int) -> str:
        """Return the name of a shard, its Deployment and its Service: `hall-sensors-0`."""
        return f"{self.fleet}-{index}"

    def index(self, shard: str) -> int | None:
        """Return the index in a shard's name, or None if it is not one of this fleet's."""
        prefix, _, number = shard.rpartition("-")
        return int(number) if prefix == self.fleet and re.fullmatch("0|[1-9][0-9]{0,8}", number) else None

    @property
    def services(self) -> list[str]:
        """Return the names of the fleet's Service within its cluster."""
        name = f"{self.fleet}.{self._namespace}"
        return [self.fleet, name, f"{name}.svc", f"{name}.svc.cluster.local"]

    @property
    def selector(self) -> dict[str, str]:
        """Return the labels that exactly the fleet's children and pods have."""
        return {LABEL_FLEET: self.label, LABEL_MANAGED_BY: MANAGED_BY}

    @property
    def selector_text(self) -> str:
        """Return the labels in the form for `kubectl --selector` and the scale subresource."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.selector.items()))

    def labels(self, shard: str = "") -> dict[str, str]:
        """Return the labels of a child; with `shard`, of one that belongs to a shard."""
        labels = {
            "app.kubernetes.io/name": "embereye",
            "app.kubernetes.io/instance": self._name,
            "app.kubernetes.io/component": f"{self._component}-shard",
            "app.kubernetes.io/part-of": "embereye",
            **self.selector,
        }
        return labels | ({LABEL_SHARD: shard} if shard else {})

    def metadata(self, name: str, shard: str = "") -> Manifest:
        """Return the metadata of a child, which is deleted with its fleet."""
        return {
            "name": name,
            "namespace": self._namespace,
            "labels": self.labels(shard),
            "ownerReferences": [dict(self._owner)],
        }
