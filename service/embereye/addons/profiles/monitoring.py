"""The alert of profiles: nobody confirmed one, so a zone has its normal profile while people may rely on another."""

from embereye_operator.monitoring.alert import HUB, Alert

ALERTS = (
    Alert(
        "EmberEyeProfileUnconfirmed", "warning", "release",
        f"max by ({HUB}) (embereye_hub_profiles_unconfirmed) > 0", "1m",
        "Nobody confirmed a profile of a zone",
        "The zone is back to normal, so work in it may raise alarms. `embereye profile list` names zone and profile.",
        "Only with profiles. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
