"""The alert of walk tests: a zone's test is overdue."""

from embereye_operator.monitoring.alert import Alert

ALERTS = (
    Alert(
        "EmberEyeWalkTestOverdue", "warning", "zone",
        "max by (cluster, namespace, zone) (embereye_hub_walktest_overdue_devices) > 0", "5m",
        "Zone {{ $labels.namespace }}/{{ $labels.zone }} is due for a walk test",
        "{{ $value }} of its devices were not triggered in a walk test in time. `embereye walktest status` names them.",
        "Only with --walktest-every. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
