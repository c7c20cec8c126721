"""The choice of the connection that speaks for a device, without connections."""

from dataclasses import dataclass

import pytest

from embereye.sensor.speaker import PINNED, SUPERSEDED, refusal
from embereye.shard.access import EVERYTHING, Grant


@dataclass
class Connection:
    number: int
    address: str = "10.0.0.1"
    grant: Grant = EVERYTHING


OLD, NEW = Connection(1), Connection(2)
STRANGER = Connection(3, "10.0.0.9")
CERTIFIED = Connection(1, "10.0.0.9", Grant("s-01"))


@pytest.mark.parametrize(
    ("claimant", "speaker", "pins", "expected"),
    [
        (NEW, OLD, False, ""),
        (NEW, OLD, True, ""),
        (OLD, NEW, False, SUPERSEDED),
        (OLD, NEW, True, SUPERSEDED),
        (STRANGER, OLD, False, ""),
        (STRANGER, OLD, True, PINNED),
        (NEW, CERTIFIED, True, PINNED),
        (CERTIFIED, OLD, True, ""),
        (CERTIFIED, NEW, True, SUPERSEDED),
    ],
)
def test_the_newest_connection_speaks_unless_rules_bind_the_device(
    claimant: Connection, speaker: Connection, pins: bool, expected: str
) -> None:
    assert refusal(claimant, speaker, pins=pins, is_heard=lambda: True) == expected
    assert refusal(claimant, speaker, pins=pins, is_heard=lambda: False) == ""
