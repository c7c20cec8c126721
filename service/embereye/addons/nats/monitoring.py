"""The alert and the panel of the bus: the stream accepts no evidence, or the hub does not read it."""

from embereye_operator.monitoring.alert import HUB, Alert
from embereye_operator.monitoring.panel import C, Panel, line

ALERTS = (
    Alert(
        "EmberEyeHubBusFailing", "warning", "release",
        f"max by ({HUB}) (embereye_hub_bus_failing) == 1", "1m",
        "NATS does not accept evidence of {{ $labels.pod }}",
        "Only the database acknowledges evidence, as without NATS. If the database or its hub fails as well, shards "
        "store their reports.",
        "Only with hub.nats. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
PANELS = (
    Panel("Evidence in NATS", "Reports in the stream that the hub has not read yet.", "short",
          "EmberEyeHubBusFailing", line(f"max(embereye_hub_bus_waiting_reports{{{C}}})", "waiting"),
          warning=100, critical=10_000, needs="hub.nats"),
)  # fmt: skip
