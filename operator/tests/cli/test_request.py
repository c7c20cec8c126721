"""`embereye request`: reasons why a device does not get a request."""

import pytest

from embereye_cli.devices.request import explain_refusal

FLEETS = {"s-01": "default/sensors/hall", "door": "default/cameras/yard"}
UNDECLARED = "{} is not declared in this fleet: add it to spec.sensors"


@pytest.mark.parametrize(
    ("device", "reason", "sentence", "exit_code"),
    [
        ("door", UNDECLARED.format("door"), "door is a camera: only sensors answer requests.", 4),
        ("s-1", UNDECLARED.format("s-1"), "Did you mean s-01?", 5),
        ("x", UNDECLARED.format("x"), "x is not declared in this fleet", 5),
        ("s-01", "s-01 has no text connection now", "s-01 has no text connection now", 1),
    ],
)
def test_a_refused_request_is_explained_with_what_the_hub_knows(
    device: str, reason: str, sentence: str, exit_code: int
) -> None:
    refusal = explain_refusal(device, reason, FLEETS)
    assert sentence in str(refusal)
    assert refusal.exit_code == exit_code
