"""Names, labels and owners of a fleet's children.

All names derive from the fleet's name and kind and the shard's index, so any process can compute them without a lookup.
The label LABEL_FLEET finds a fleet's children and pods, and owner references delete them with the fleet. Names,
selectors and labels are part of existing objects, so they must not change.
"""

import re

from embereye_operator.api.exposure import NAME
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION

MANAGED_BY = "embereye-operator"  # also the field manager
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_FLEET = "embereye.dev/fleet"  # value: see fleet_label
LABEL_SHARD = "embereye.dev/shard"
LABEL_ALLOWED = "embereye.dev/allow-fleet-use"  # on a Secret, "true": fleets in its namespace may use it
ANNOTATION_DRAIN = "embereye.dev/drain"  # on a fleet: comma-separated shards that others should replace


def fleet_name(fleet: Fleet) -> str:
    """Return the name of the objects that a fleet has once: `hall-sensors`."""
    return f"{fleet.name}-{fleet.kind}"


def shard_name(fleet: Fleet, index: int) -> str:
    """Return the name of a shard, its Deployment and its Service: `hall-sensors-0`."""
    return f"{fleet_name(fleet)}-{index}"


def shard_index(fleet: Fleet, name: str) -> int | None:
    """Return the index in a shard's name, or None if it is not one of this fleet's."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == fleet_name(fleet) and re.fullmatch("0|[1-9][0-9]{0,8}", number) else None


def drained(fleet: Fleet) -> list[str]:
    """Return the shards that a person wants to replace."""
    names = (name.strip() for name in fleet.annotations.get(ANNOTATION_DRAIN, "").split(","))
    return [name for name in names if shard_index(fleet, name) is not None]


def identity_name(shard: str) -> str:
    """Return the name of the Secret with a shard's certificate."""
    return f"{shard}-identity"


def served_names(fleet: Fleet, *internal: str) -> tuple[str, ...]:
    """Return the names in a fleet's certificate for devices, if our authority issues it; `internal` names come first.

    Empty if devices get no such certificate.
    """
    tls = fleet.spec.access and fleet.spec.access.tls
    advertised = advertised_host(fleet, fleet_name(fleet))
    wanted = (*internal, *([advertised] if advertised else ()), *(tls.names if tls else ()))
    return tuple(dict.fromkeys(wanted)) if tls and tls.secret_ref is None else ()


def advertised_host(fleet: Fleet, name: str) -> str:
    """Return the host that devices use for the Service or route `name`; empty if `spec.expose` has none."""
    expose = fleet.spec.expose
    return (expose.advertised_host or "").replace(NAME, name) if expose else ""


def service_names(fleet: Fleet) -> list[str]:
    """Return the names of the fleet's Service within its cluster."""
    name = f"{fleet_name(fleet)}.{fleet.namespace}"
    return [fleet_name(fleet), name, f"{name}.svc", f"{name}.svc.cluster.local"]


def placement_name(fleet: Fleet) -> str:
    """Return the name of the placement ConfigMap."""
    return f"{fleet_name(fleet)}-placement"


def fleet_label(fleet: Fleet) -> str:
    """Return the value of LABEL_FLEET; it is unique within a namespace."""
    return f"{fleet.kind}.{fleet.name}"


def selector(fleet: Fleet) -> dict[str, str]:
    """Return the labels that exactly the fleet's children and pods have."""
    return {LABEL_FLEET: fleet_label(fleet), LABEL_MANAGED_BY: MANAGED_BY}


def selector_text(fleet: Fleet) -> str:
    """Return the labels in the form for `kubectl --selector` and the scale subresource."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector(fleet).items()))


def build_labels(fleet: Fleet, shard: str = "") -> dict[str, str]:
    """Return the labels of a child; with `shard`, of one that belongs to a shard."""
    labels = {
        "app.kubernetes.io/name": "embereye",
        "app.kubernetes.io/instance": fleet.name,
        "app.kubernetes.io/component": f"{fleet.type.component}-shard",
        "app.kubernetes.io/part-of": "embereye",
        **selector(fleet),
    }
    return labels | ({LABEL_SHARD: shard} if shard else {})


def build_metadata(fleet: Fleet, name: str, shard: str = "") -> Manifest:
    """Return the metadata of a child, which is deleted with its fleet."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": fleet.type.resource,
        "name": fleet.name,
        "uid": fleet.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": fleet.namespace,
        "labels": build_labels(fleet, shard),
        "ownerReferences": [owner],
    }
