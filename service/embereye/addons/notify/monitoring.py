"""The alerts of notifications: a route reaches nobody, nobody confirmed its test, or a roster is out of date."""

from embereye_operator.monitoring.alert import HUB, Alert

ALERTS = (
    Alert(
        "EmberEyeRouteFailing", "critical", "release",
        f"max by ({HUB}, route) (embereye_hub_notify_failing) == 1 or "
        f"max by ({HUB}, route) (embereye_hub_notify_dead_letters) > 0", "2m",
        "The route {{ $labels.route }} does not reach anybody",
        "Messages wait, or were given up: `embereye notify list` has the reason. Escalations continue with their next "
        "step. Alarms still reach the console.",
        "Only with notifications. EmberEyeHubDown fires for a missing hub.",
    ),
    Alert(
        "EmberEyeRouteUnconfirmed", "warning", "release",
        f"max by ({HUB}, route) (embereye_hub_notify_unconfirmed) == 1", "1m",
        "Nobody has confirmed the test of the route {{ $labels.route }}",
        "The service accepts messages, but nobody shows that they arrive. Ask the person, and look at their device.",
        "Only with notifications whose routes have a canary. EmberEyeHubDown fires for a missing hub.",
    ),
    Alert(
        "EmberEyeDutyCalendarStale", "warning", "release",
        f"max by ({HUB}, duty) (embereye_hub_notify_calendar_stale) == 1", "5m",
        "The calendar of the duty {{ $labels.duty }} cannot be read",
        "The hub uses its last readable copy, and notifies the routes under `otherwise` too. The reason is in "
        "`embereye notify list`.",
        "Only with notifications whose duties have a calendar. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
