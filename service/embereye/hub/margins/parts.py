"""The parts that margins add to a hub."""

from embereye.hub.addon import Parts
from embereye.hub.hub import Hub
from embereye.hub.margins.metrics import margin_metrics
from embereye.hub.margins.routes import MarginRoutes
from embereye.hub.margins.service import MarginService
from embereye.hub.margins.store import MarginStore
from embereye.process.grpc_server import Service
from embereye.process.margins_call import CALL
from embereye.process.telemetry.metric import Scraped


def margin_parts(hub: Hub, store: MarginStore) -> Parts:
    """Make the service for shards, the route for people, and the metrics. They close `store`."""
    return Parts(
        services=[Service(CALL.add, MarginService(hub, store), CALL.service)],
        routes=[MarginRoutes(hub, store)],
        collectors=[Scraped(lambda: margin_metrics(store))],
        tasks={"margins": store.run},
        close=store.close,
    )
