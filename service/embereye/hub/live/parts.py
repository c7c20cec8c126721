"""The parts that live pictures add to a hub."""

from embereye.hub.addon import Parts
from embereye.hub.hub import Hub
from embereye.hub.live.metrics import live_metrics
from embereye.hub.live.routes import LiveRoutes
from embereye.hub.live.shards import LiveService
from embereye.hub.live.viewers import Viewers
from embereye.process.grpc_server import Service
from embereye.process.live_call import SERVICE, add_live
from embereye.process.telemetry.metric import Scraped


def live_parts(hub: Hub) -> Parts:
    """Make the service for shards, the routes for people, and the metrics."""
    viewers = Viewers()
    return Parts(
        services=[Service(add_live, LiveService(viewers), SERVICE)],
        routes=[LiveRoutes(hub, viewers)],
        collectors=[Scraped(lambda: live_metrics(viewers))],
    )
