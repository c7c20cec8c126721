"""kopf's part: watches that tell of events. It writes nothing to any object."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from typing import Any

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from embereye_operator.manifests import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.model import FLEET_TYPES, GROUP, VERSION
from embereye_operator.schema import Manifest

WATCHED = (
    *((GROUP, VERSION, fleet.plural) for fleet in FLEET_TYPES.values()),
    ("apps", "v1", "deployments"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("policy", "v1", "poddisruptionbudgets"),
)
LABELLED = ("deployments", "services", "poddisruptionbudgets")  # ConfigMaps of device lists are other people's


logger = logging.getLogger(__name__)
Observe = Callable[[str | None, Manifest], None]  # event type (None: it was there already), object
STOP_SECONDS = 2.0  # for kopf to close its streams; nothing is lost if it does not


class Watches:
    """Runs kopf in a thread with an event loop of its own, and calls `observe` on the loop that made this.

    kopf takes the loop it runs on for its own: it replaces signal handlers, and when it ends it waits for every task
    it did not start itself, then cancels it.
    """

    def __init__(self, observe: Observe, *, namespaces: Collection[str]) -> None:
        """`namespaces` are those to watch; none: all."""
        self.ended = asyncio.Event()  # set when watching is over, whyever
        self._loop = asyncio.get_running_loop()
        self._observe = observe
        self._namespaces = namespaces
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(
                kopf.operator(
                    registry=build_registry(self._tell),
                    settings=build_settings(),
                    memories=NoMemories(),
                    standalone=True,
                    clusterwide=not self._namespaces,
                    namespaces=self._namespaces,
                    stop_flag=self._stop,
                )
            )
        except Exception:
            logger.exception("the watches failed")
        finally:
            self._on_loop(self.ended.set)

    def _tell(self, type_: str | None, manifest: Manifest) -> None:
        self._on_loop(self._observe, type_, manifest)

    def _on_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)


class NoMemories(ResourceMemories):
    """Keeps nothing: what kopf remembers of an object, handlers of events alone never ask for."""

    async def recall(self, raw_body: Any, **options: Any) -> ResourceMemory:
        """A memory for this event only."""
        return await super().recall(raw_body, **{**options, "ephemeral": True})


def build_registry(tell: Observe) -> kopf.OperatorRegistry:
    """Handlers that pass every event on. Only `on.event`: kopf's other kinds write annotations and finalizers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def observe(event: kopf.RawEvent, **_: Any) -> None:
        tell(event["type"], dict(event["object"]))

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
    for noisy in ("kopf.objects", "kopf.activities", "kopf._core", "kopf._cogs"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # It tells every attempt of every watch; `resync` meets the same server and tells it once.
    logging.getLogger("kopf._cogs.clients").setLevel(logging.CRITICAL)
    # It warns that it does not handle signals in a thread, which is why it runs in one.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    return settings
