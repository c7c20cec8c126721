"""The alert of self-tests: a lamp or a heater was not seen."""

from embereye_operator.monitoring.alert import HUB, Alert

ALERTS = (
    Alert(
        "EmberEyeSelfTestFailed", "warning", "release",
        f"min by ({HUB}, test) (embereye_hub_selftest_passed) == 0", "10m",
        "The self-test {{ $labels.test }} failed",
        "Its device did not see the lamp or heater in time, or the test could not be run. `embereye selftest list` has "
        "the reason.",
        "Only with --selftest. EmberEyeHubDown fires for a missing hub.",
    ),
)  # fmt: skip
