"""The handlers for kopf: start and stop the operator, and mark fleets dirty on watch events. They write no object.

kopf watches the resources in WATCHED and calls `observe` for each event, which puts the object into the controller's
cache and marks fleets dirty. kopf's other handlers for objects are not used, because they write annotations and
finalizers. Workers of the controller reconcile instead. The `Manager` is kopf's memo; it starts in kopf's startup and
ends in its cleanup, because kopf takes over the event loop.
"""

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

import kopf

from embereye.process import lifecycle
from embereye_operator.api.fleets import FLEET_TYPES
from embereye_operator.api.names import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.api.shared import GROUP, VERSION
from embereye_operator.manager import Manager

WATCHED = (
    *((GROUP, VERSION, fleet.plural) for fleet in FLEET_TYPES.values()),
    ("apps", "v1", "deployments"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("policy", "v1", "poddisruptionbudgets"),
)
LABELLED = ("deployments", "services", "poddisruptionbudgets")  # not ConfigMaps, because people write device lists
# The name among kopf's peers, which are unused. Without it kopf resolves this machine's name, and everything waits for
# the resolver.
IDENTITY: Any = "embereye"
REPEAT_SECONDS = 600.0  # between equal messages of kopf
MAX_REMEMBERED = 1000  # messages remembered; beyond it those older than REPEAT_SECONDS are dropped


async def run_operator(manager: Manager, *, namespaces: Collection[str]) -> None:
    """Run kopf on this loop until `manager.stopping` is set or a signal arrives; no namespaces: all of them.

    kopf takes over the loop: it replaces signal handlers, and at its end waits for all remaining tasks, then cancels
    them. So everything that `manager` runs starts in kopf's startup and ends in its cleanup.
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
        await manager.stop()  # if kopf failed before its startup


def build_registry() -> kopf.OperatorRegistry:
    """Build all handlers. Objects have only `on.event` handlers: kopf's others write annotations and finalizers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def start(memo: Manager, **_: Any) -> None:
        try:
            await memo.start()
        except BaseException:
            await memo.stop()  # kopf cleans up only what has started
            raise
        # kopf's signal handlers treat a second signal as a bug; these end the process at once.
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
    """Build kopf's settings, where they differ from its defaults."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # the operator records Events itself, on change
    settings.scanning.disabled = True  # needs rights on CRDs and namespaces of the whole cluster
    settings.watching.server_timeout = 300  # seconds; a watch is renewed before proxies cut it
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 50
    settings.queueing.idle_timeout = 0.1  # seconds; a worker for each object of a list would outweigh the objects
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    # Seconds between attempts. After the last one kopf ends, and with it the operator: an hour outlasts most outages.
    settings.networking.error_backoffs = (1, 1, 2, 3, 5, *[10] * 360)
    settings.process.ultimate_exiting_timeout = 20
    for plural in LABELLED:
        settings.watching.label_selectors[plural] = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    # Every namespace has this ConfigMap, and no fleet uses it.
    settings.watching.field_selectors["configmaps"] = "metadata.name!=kube-root-ca.crt"
    return settings


def quieten(kopf_logger: logging.Logger) -> None:
    """Suppress kopf's messages below warnings, and repeated messages about a server that is away."""
    kopf_logger.setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:  # a filter on a logger does not see what its children pass up
        if not any(isinstance(known, RepetitionFilter) for known in handler.filters):
            handler.addFilter(RepetitionFilter(kopf_logger.name))


class RepetitionFilter(logging.Filter):
    """Drops recent repetitions from loggers below `name`: messages with the same beginning count as equal.

    Answers of the API server, such as 404 for a removed CustomResourceDefinition, are logged without a traceback.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._prefix = f"{name}."
        self._clock = clock
        self._logged: dict[tuple[str, str], float] = {}  # logger and beginning → monotonic seconds

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True to pass `record` on."""
        if record.exc_info and type(record.exc_info[1]).__module__.startswith(self._prefix):
            record.exc_info = None
            if record.name == "asyncio":  # kopf has logged it already
                return False
        if not record.name.startswith(self._prefix):
            return True
        key = record.name, " ".join(record.getMessage().split()[:2])
        now = self._clock()
        if now - self._logged.get(key, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        if len(self._logged) >= MAX_REMEMBERED:  # beginnings contain names of objects
            self._logged = {
                message: logged for message, logged in list(self._logged.items()) if now - logged < REPEAT_SECONDS
            }
        self._logged[key] = now
        return True
