"""The alerts and the panel of control: controllers that do not answer in time, and rules that do not work."""

from embereye_operator.monitoring.alert import HUB, Alert
from embereye_operator.monitoring.panel import RATE, C, Panel, line

ALERTS = (
    Alert(
        "EmberEyeControlDeadlinesMissed", "warning", "release",
        f"sum by ({HUB}) (rate(embereye_hub_control_missed_total[5m])) / "
        f"(sum by ({HUB}) (rate(embereye_hub_control_states_total[5m])) > 0) > 0.01", "5m",
        "Controllers of actuators miss their deadlines",
        "{{ $value | humanizePercentage }} of the actuators' States were not answered in time. Meanwhile the previous "
        "Command applies, and safe values if no Command follows.",
        "Only with controlled actuators. EmberEyeHubDown fires for a missing hub.",
    ),
    Alert(
        "EmberEyeActuatorRulesFailing", "critical", "release",
        f"max by ({HUB}, actuator) (embereye_hub_control_rules_failing) == 1", "30s",
        "The actuator {{ $labels.actuator }} would not react to a fire",
        "It is not connected, another controller steers it, or it lacks an output of the rules: the hub's log has the "
        "reason. Alarms still reach the console and the other ways.",
        "Only with hub.actuators. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
PANELS = (
    Panel("Control deadlines", "Share of actuators' States that were not answered in time.", "percentunit",
          "EmberEyeControlDeadlinesMissed",
          line(f"sum(rate(embereye_hub_control_missed_total{{{C}}}[{RATE}])) / "
               f"(sum(rate(embereye_hub_control_states_total{{{C}}}[{RATE}])) > 0)", "missed"), warning=0.001,
          critical=0.01, needs="an actuator"),
)  # fmt: skip
