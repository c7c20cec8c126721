"""What the operator was started with and every shard needs."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from embereye_operator.api.fleets import Fleet
from embereye_operator.decide.hubs import NamedHub
from embereye_operator.decide.rollout.turns import Turns
from embereye_operator.decide.scaling.law import Observed


@dataclass(frozen=True)
class Settings:
    """What the operator was started with and every shard needs."""

    image: str
    hub: str  # host:port, as shards reach it
    hubs: tuple[NamedHub, ...] = ()  # more of them, for fleets that choose one or whose namespace they are for
    image_pull_policy: str = ""  # empty: Kubernetes' own default
    image_pull_secrets: tuple[str, ...] = ()  # of shards, in their fleets' namespaces
    user: int | None = 65532  # that shards run as, of the image; None: whom the cluster says
    host: str = ""  # that shards listen on; empty: every address, of both families
    prometheus: str = "http://prometheus-operated.monitoring.svc:9090"  # that KEDA asks
    log_format: str = ""  # of the shards; empty: text
    tracing: str = ""  # OTLP endpoint of the shards' traces; empty: they trace nothing
    scrape_annotations: bool = False  # for a Prometheus that looks for prometheus.io/* rather than monitors
    operator: str = ""  # its Lease, namespace/name, by which a fleet's status names it; empty: it has none
    turns: Turns | None = None  # of fleets in a roll-out; None: each for itself
    trace: Callable[[Fleet, Observed], None] | None = None  # is told what every scaling decision is made on

    def listening(self, host: str) -> "Settings":
        """The same for a shard that listens on `host` already, where nobody says which address it is to be."""
        return replace(self, host=self.host or host)
