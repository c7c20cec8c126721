"""The claims of fleets: their devices' ids and their ports. Two fleets with the same one disturb each other.

A device of two fleets is watched twice: one sensor would confirm its own alarm. Ids are compared among fleets of one
kind and namespace, because copies of a manifest in several namespaces are usual. Node ports and the TCP listeners of
gateways belong to the whole cluster.

Each pass records the claims of its fleet and gets the conflicts. The other fleet learns of them in its next pass.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from embereye.units import listed
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.sensors import SensorFleetSpec

Claim = tuple[str, ...]  # its kind, the place where it must be unique, its name
REASONS = {"device": "DeviceShared", "port": "PortShared"}


class Claims:
    """The claims of all fleets of one operator. Losing them only delays a sentence."""

    def __init__(self) -> None:
        self._of_fleet: dict[str, frozenset[Claim]] = {}
        self._fleets: dict[Claim, tuple[str, ...]] = {}  # the fleets that claim it

    def note(self, fleet: str, claims: frozenset[Claim]) -> Mapping[str, str]:
        """Record what `fleet` claims; return the conflicts with others, as reason → sentence."""
        before = self._of_fleet.get(fleet, frozenset())
        if claims != before:
            self._remove(fleet, before - claims)
            for claim in claims - before:
                self._fleets[claim] = (*self._fleets.get(claim, ()), fleet)
            self._of_fleet[fleet] = claims
        if len(self._of_fleet) < 2:
            return {}
        return _describe(fleet, {claim: owners for claim in claims if len(owners := self._fleets[claim]) > 1})

    def release(self, fleet: str) -> None:
        """Forget a fleet that is gone, or that another operator reconciles."""
        self._remove(fleet, self._of_fleet.pop(fleet, frozenset()))

    def forget(self) -> None:
        """Forget all fleets."""
        self._of_fleet.clear()
        self._fleets.clear()

    def _remove(self, fleet: str, claims: Iterable[Claim]) -> None:
        for claim in claims:
            if others := tuple(owner for owner in self._fleets[claim] if owner != fleet):
                self._fleets[claim] = others
            else:
                del self._fleets[claim]


def claims_of(fleet: Fleet, devices: Collection[str], shards: int) -> frozenset[Claim]:
    """Return what `fleet` claims, with the ids of all its `devices`, and with this number of shards."""
    place = f"{fleet.namespace}/{fleet.kind}"
    return frozenset({*(("device", place, device) for device in devices), *_ports(fleet, shards)})


def _ports(fleet: Fleet, shards: int) -> Iterable[Claim]:
    expose = fleet.spec.expose
    if expose is None:
        return
    ports = expose.ports
    if expose.type == "NodePort":
        fixed = [ports.grpc, ports.tcp, ports.tls, ports.http]
        fixed += range(ports.shards, ports.shards + shards) if ports.shards else ()
        yield from (("port", "nodes", f"node port {port}") for port in fixed if port)
    elif expose.type == "Gateway" and expose.gateway and isinstance(fleet.spec, SensorFleetSpec):
        # Routes for gRPC are distinguished by their host names.
        gateway = expose.gateway
        if gateway.tcp_listener:
            place = f"{gateway.namespace or fleet.namespace}/{gateway.name}"
            yield "port", place, f"listener {gateway.tcp_listener} of Gateway {place}"


def _describe(fleet: str, shared: Mapping[Claim, Sequence[str]]) -> dict[str, str]:
    problems = {}
    for kind, reason in REASONS.items():
        names = sorted(claim[2] for claim in shared if claim[0] == kind)
        if not names:
            continue
        others = {owner for claim, owners in shared.items() if claim[0] == kind for owner in owners} - {fleet}
        namespace = fleet.partition("/")[0]
        # Who can read a fleet cannot necessarily read those of other namespaces.
        known = sorted(owner if owner.partition("/")[0] == namespace else "a fleet elsewhere" for owner in others)
        are = "is" if len(names) == 1 else "are"
        declared = f"{listed(names)} {are} also declared by {listed(list(dict.fromkeys(known)))}"
        remedy = {
            "device": "both watch it, and it could confirm its own alarm. Remove it from one of them",
            "port": "only one of them can have it. Choose another port",
        }[kind]
        problems[reason] = f"{declared}: {remedy}"
    return problems
