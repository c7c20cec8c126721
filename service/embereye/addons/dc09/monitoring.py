"""The alert and the panel of monitoring stations: no receiver answers, and what waits."""

from embereye_operator.monitoring.alert import HUB, Alert
from embereye_operator.monitoring.panel import C, Panel, line

ALERTS = (
    Alert(
        "EmberEyeStationFailing", "critical", "release",
        f"min by ({HUB}, station) (embereye_hub_dc09_receiver_failing) == 1 or "
        f"max by ({HUB}, station) (embereye_hub_dc09_waiting_seconds) > 60", "1m",
        "The monitoring station {{ $labels.station }} gets no alarms",
        "No receiver answers, or a message waits: the hub's log has the reason. Alarms still reach the console and the "
        "other ways.",
        "Only with hub.dc09. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
PANELS = (
    Panel("Monitoring stations", "Messages that no receiver has acknowledged.", "short",
          "EmberEyeStationFailing",
          line(f"max by (station) (embereye_hub_dc09_waiting_messages{{{C}}})", "{{station}}"), warning=1,
          critical=10, needs="hub.dc09"),
)  # fmt: skip
