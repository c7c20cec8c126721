"""The alert and the panel of outputs: a building's panel cannot be switched, and what is on."""

from embereye_operator.monitoring.alert import HUB, Alert
from embereye_operator.monitoring.panel import C, Panel, line

ALERTS = (
    Alert(
        "EmberEyeModbusFailing", "critical", "release",
        f"max by ({HUB}, panel) (embereye_hub_modbus_failing) == 1", "30s",
        "Outputs of the building do not switch: the panel {{ $labels.panel }}",
        "It cannot be reached by Modbus, or refuses an output: the hub's log has the reason. Alarms still reach the "
        "console and the other ways.",
        "Only with hub.modbus. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
PANELS = (
    Panel("Outputs of the building", "Coils and registers that are on.", "short", "EmberEyeModbusFailing",
          line(f"max by (panel) (embereye_hub_modbus_outputs_on{{{C}}})", "{{panel}}"), needs="hub.modbus"),
)  # fmt: skip
