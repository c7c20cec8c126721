"""The operator's options that its shards' manifests depend on."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from embereye_operator.api.fleets import Fleet
from embereye_operator.decide.claims import Claims
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.decide.rollout.turns import Turns
from embereye_operator.decide.scaling.law import Observed


@dataclass(frozen=True)
class Settings:
    """The operator's options that its shards' manifests depend on."""

    image: str
    hub: str  # host:port, as shards reach it
    hubs: tuple[NamedHub, ...] = ()  # additional hubs, for fleets that choose one or are in its namespaces
    image_pull_policy: str = ""  # empty: Kubernetes' own default
    image_pull_secrets: tuple[str, ...] = ()  # of shards, in their fleets' namespaces
    user: int | None = 65532  # user id of the shards, from the image; None: the cluster chooses
    host: str = ""  # address that shards listen on; empty: all IPv4 and IPv6 addresses
    prometheus: str = "http://prometheus-operated.monitoring.svc:9090"  # for KEDA's queries
    log_format: str = ""  # of the shards; empty: text
    tracing: str = ""  # OTLP endpoint of the shards' traces; empty: no traces
    scrape_annotations: bool = False  # for a Prometheus that uses prometheus.io/* annotations instead of monitors
    operator: str = ""  # namespace/name of its Lease, its name in a fleet's status; empty: none
    turns: Turns | None = None  # of fleets in a roll-out; None: fleets do not wait for each other
    claims: Claims | None = None  # of all fleets; None: fleets are not compared
    trace: Callable[[Fleet, Observed], None] | None = None  # called with the inputs of every scaling decision

    def listening(self, host: str) -> "Settings":
        """Return the settings for a shard that already listens on `host`, unless the options choose an address."""
        return replace(self, host=self.host or host)
