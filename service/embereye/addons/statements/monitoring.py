"""The alert of statements: a day has none."""

from embereye_operator.monitoring.alert import HUB, Alert

ALERTS = (
    Alert(
        "EmberEyeStatementMissing", "warning", "release",
        f"max by ({HUB}) (embereye_hub_statements_missing) > 0", "5m",
        "A day has no statement of watch",
        "The hub could not make or store the statement of {{ $value }} past days. Its log says why.",
        "EmberEyeHubDown",
    ),
)  # fmt: skip
