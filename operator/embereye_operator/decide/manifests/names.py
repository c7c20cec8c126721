"""Names that a fleet's annotations and spec declare: shards to replace, and hosts for devices."""

from embereye_operator.api.exposure import NAME
from embereye_operator.api.fleets import Fleet

LABEL_ALLOWED = "embereye.dev/allow-fleet-use"  # on a Secret, "true": fleets in its namespace may use it
ANNOTATION_DRAIN = "embereye.dev/drain"  # on a fleet: comma-separated shards that others should replace


def drained(fleet: Fleet) -> list[str]:
    """Return the shards that a person wants to replace."""
    names = (name.strip() for name in fleet.annotations.get(ANNOTATION_DRAIN, "").split(","))
    return [name for name in names if fleet.names.index(name) is not None]


def served_names(fleet: Fleet, *internal: str) -> tuple[str, ...]:
    """Return the names in a fleet's certificate for devices, if our authority issues it; `internal` names come first.

    Empty if devices get no such certificate.
    """
    tls = fleet.spec.access and fleet.spec.access.tls
    advertised = advertised_host(fleet, fleet.names.fleet)
    wanted = (*internal, *([advertised] if advertised else ()), *(tls.names if tls else ()))
    return tuple(dict.fromkeys(wanted)) if tls and tls.secret_ref is None else ()


def advertised_host(fleet: Fleet, name: str) -> str:
    """Return the host that devices use for the Service or route `name`; empty if `spec.expose` has none."""
    expose = fleet.spec.expose
    return (expose.advertised_host or "").replace(NAME, name) if expose else ""
