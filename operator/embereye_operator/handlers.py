"""kopf's part: when the operator starts and stops, and watches that mark fleets dirty. It writes to no object."""

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

import kopf

from embereye.process import lifecycle
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.api.shared import GROUP, VERSION
from embereye_operator.decide.manifests.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.manager import Manager

WATCHED = (
    *((GROUP, VERSION, fleet.plural) for fleet in FLEET_TYPES.values()),
    ("apps", "v1", "deployments"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("policy", "v1", "poddisruptionbudgets"),
)
LABELLED = ("deployments", "services", "poddisruptionbudgets")  # ConfigMaps of device lists are other people's
# Among kopf's peers, of which there are none. Without it kopf asks the resolver for this machine's name, and everything
# waits for as long as that takes to answer.
IDENTITY: Any = "embereye"
REPEAT_SECONDS = 600.0  # between messages of kopf's that say the same
MOST_SAID = 1000  # messages that are remembered for longer than that


async def run_operator(manager: Manager, *, namespaces: Collection[str]) -> None:
    """Run kopf on this loop until `manager.stopping` is set or it is signalled; no namespaces: all of them.

    kopf takes the loop for its own: it replaces signal handlers, and what is left of anybody's tasks when it ends it
    waits for, then cancels. So everything that `manager` runs begins in kopf's startup and is over with its cleanup.
    """
    quieten(logging.getLogger("kopf"))
    try:
        await kopf.operator(
            registry=build_registry(),
            settings=build_settings(),
            memo=manager,
            standalone=True,
            identity=IDENTITY,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=manager.stopping,
        )
    finally:
        await manager.stop()  # where kopf did not get as far as its startup


def build_registry() -> kopf.OperatorRegistry:
    """All handlers. Of objects only `on.event`: kopf's other kinds write annotations and finalizers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def start(memo: Manager, **_: Any) -> None:
        try:
            await memo.start()
        except BaseException:
            await memo.stop()  # kopf cleans up only what has started
            raise
        # kopf's own handlers take a second signal for a bug; ours end the process at once.
        lifecycle.stop_on_signals(memo.stopping)

    @kopf.on.cleanup(registry=registry)
    async def stop(memo: Manager, **_: Any) -> None:
        await memo.stop()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def observe(event: kopf.RawEvent, memo: Manager, **_: Any) -> None:
        memo.controller.observe(event["type"], dict(event["object"]))

    for group, version, plural in WATCHED:
        kopf.on.event(group, version, plural, registry=registry, id=f"observe-{plural}")(observe)
    return registry


def build_settings() -> kopf.OperatorSettings:
    """Kopf's settings, where its defaults are not ours."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # we tell people ourselves, on change
    settings.scanning.disabled = True  # needs rights on CRDs and namespaces of the whole cluster
    settings.watching.server_timeout = 300  # seconds; a watch is renewed before proxies cut it
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 50
    settings.queueing.idle_timeout = 0.1  # seconds; a worker for each object of a list would outweigh the objects
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    # Seconds between attempts. Where they end kopf does, and with it the operator: an hour is longer than an outage.
    settings.networking.error_backoffs = (1, 1, 2, 3, 5, *[10] * 360)
    settings.process.ultimate_exiting_timeout = 20
    for plural in LABELLED:
        settings.watching.label_selectors[plural] = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    # Every namespace has one, and no fleet takes devices from it.
    settings.watching.field_selectors["configmaps"] = "metadata.name!=kube-root-ca.crt"
    return settings


def quieten(kopf_logger: logging.Logger) -> None:
    """Let through only what kopf warns of, and not every attempt of every watch at a server that is away."""
    kopf_logger.setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:  # a filter on a logger does not see what its children pass up
        if not any(isinstance(known, Unrepeated) for known in handler.filters):
            handler.addFilter(Unrepeated(kopf_logger.name))


class Unrepeated(logging.Filter):
    """Drops what a logger below `name` has said lately: the same beginning counts as the same."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._prefix = f"{name}."
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}  # logger and beginning → monotonic seconds

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is to be seen."""
        if not record.name.startswith(self._prefix):
            return True
        key = record.name, " ".join(record.getMessage().split()[:2])
        now = self._clock()
        if now - self._said.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        if len(self._said) >= MOST_SAID:  # objects' names are among the beginnings
            self._said = {one: said for one, said in list(self._said.items()) if now - said < REPEAT_SECONDS}
        self._said[key] = now
        return True
