"""kopf's part: watches that tell of events. It writes nothing to any object."""

import logging
from typing import Any

import kopf

from embereye_operator.controller import Controller
from embereye_operator.manifests import LABEL_MANAGED_BY, MANAGED_BY
from embereye_operator.model import FLEET_TYPES, GROUP, VERSION

WATCHED = (
    *((GROUP, VERSION, fleet.plural) for fleet in FLEET_TYPES.values()),
    ("apps", "v1", "deployments"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("policy", "v1", "poddisruptionbudgets"),
)
LABELLED = ("deployments", "services", "poddisruptionbudgets")  # ConfigMaps of device lists are other people's


def build_registry(controller: Controller) -> kopf.OperatorRegistry:
    """Handlers that pass every event on. Only `on.event`: kopf's other kinds write annotations and finalizers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    async def observe(event: kopf.RawEvent, **_: Any) -> None:
        controller.observe(event["type"], dict(event["object"]))

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
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.process.ultimate_exiting_timeout = 20
    for plural in LABELLED:
        settings.watching.label_selectors[plural] = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    for noisy in ("kopf.objects", "kopf.activities", "kopf._core", "kopf._cogs"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return settings
