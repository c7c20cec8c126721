"""Names, labels and owners of a fleet's children."""

import re

from embereye_operator.api.exposure import NAME
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.shared import API_VERSION

MANAGED_BY = "embereye-operator"  # also the field manager
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_FLEET = "embereye.dev/fleet"  # value: see fleet_label
LABEL_SHARD = "embereye.dev/shard"
LABEL_ALLOWED = "embereye.dev/allow-fleet-use"  # of somebody's Secret, "true": fleets of its namespace may use it
ANNOTATION_DRAIN = "embereye.dev/drain"  # of a fleet: shards, with commas, that others are to take the place of


def fleet_name(fleet: Fleet) -> str:
    """Name of what a fleet has one of: `hall-sensors`."""
    return f"{fleet.name}-{fleet.kind}"


def shard_name(fleet: Fleet, index: int) -> str:
    """Name of a shard, its Deployment and its Service: `hall-sensors-0`."""
    return f"{fleet_name(fleet)}-{index}"


def shard_index(fleet: Fleet, name: str) -> int | None:
    """The index in a shard's name, or None where it is not one of this fleet's."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == fleet_name(fleet) and re.fullmatch("0|[1-9][0-9]{0,8}", number) else None


def drained(fleet: Fleet) -> list[str]:
    """Shards that a person wants to be rid of."""
    names = (name.strip() for name in fleet.annotations.get(ANNOTATION_DRAIN, "").split(","))
    return [name for name in names if shard_index(fleet, name) is not None]


def identity_name(shard: str) -> str:
    """Name of the Secret with the certificate that a shard proves itself with."""
    return f"{shard}-identity"


def served_names(fleet: Fleet, *own: str) -> tuple[str, ...]:
    """What the certificate that our own authority issues for a fleet's devices has to say; `own` come first.

    None where devices are shown no such certificate.
    """
    tls = fleet.spec.access and fleet.spec.access.tls
    told = advertised_host(fleet, fleet_name(fleet))
    wanted = (*own, *([told] if told else ()), *(tls.names if tls else ()))
    return tuple(dict.fromkeys(wanted)) if tls and tls.secret_ref is None else ()


def advertised_host(fleet: Fleet, name: str) -> str:
    """The host that devices are told for the Service or route `name`; empty where `spec.expose` names none."""
    expose = fleet.spec.expose
    return (expose.advertised_host or "").replace(NAME, name) if expose else ""


def service_names(fleet: Fleet) -> list[str]:
    """The names that the fleet's Service has within its cluster."""
    name = f"{fleet_name(fleet)}.{fleet.namespace}"
    return [fleet_name(fleet), name, f"{name}.svc", f"{name}.svc.cluster.local"]


def placement_name(fleet: Fleet) -> str:
    """Name of the placement ConfigMap."""
    return f"{fleet_name(fleet)}-placement"


def fleet_label(fleet: Fleet) -> str:
    """Value of LABEL_FLEET; the namespace is the object's own."""
    return f"{fleet.kind}.{fleet.name}"


def selector(fleet: Fleet) -> dict[str, str]:
    """The labels that all of a fleet's children and pods carry, and nothing else does."""
    return {LABEL_FLEET: fleet_label(fleet), LABEL_MANAGED_BY: MANAGED_BY}


def selector_text(fleet: Fleet) -> str:
    """The same as `kubectl --selector` and the scale subresource want it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector(fleet).items()))


def build_labels(fleet: Fleet, shard: str = "") -> dict[str, str]:
    """Labels of a child; with `shard` of one of the shard's own."""
    labels = {
        "app.kubernetes.io/name": "embereye",
        "app.kubernetes.io/instance": fleet.name,
        "app.kubernetes.io/component": f"{fleet.type.component}-shard",
        "app.kubernetes.io/part-of": "embereye",
        **selector(fleet),
    }
    return labels | ({LABEL_SHARD: shard} if shard else {})


def build_metadata(fleet: Fleet, name: str, shard: str = "") -> Manifest:
    """Metadata of a child: it goes with its fleet."""
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
