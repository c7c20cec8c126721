import pytest

from embereye.hub.access.attempts import ADDRESSES, BURST, REFILL_NS, Attempts
from embereye.process.addresses import place_of


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def test_an_address_has_a_few_attempts_and_then_one_every_few_seconds():
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(BURST):
        assert attempts.wait_seconds("10.0.0.1") == 0
        attempts.note_failure("10.0.0.1")
    assert attempts.wait_seconds("10.0.0.1") == pytest.approx(3)
    assert attempts.wait_seconds("10.0.0.2") == 0
    clock.now += REFILL_NS
    assert attempts.wait_seconds("10.0.0.1") == 0
    attempts.note_failure("10.0.0.1")
    assert attempts.wait_seconds("10.0.0.1") > 0
    clock.now += 1000 * REFILL_NS
    for _ in range(BURST):
        assert attempts.wait_seconds("10.0.0.1") == 0
        attempts.note_failure("10.0.0.1")
    assert attempts.wait_seconds("10.0.0.1") > 0


def test_any_number_of_addresses_uses_bounded_memory():
    attempts = Attempts(Clock())
    for number in range(ADDRESSES + 500):
        attempts.note_failure(f"10.0.{number >> 8}.{number & 255}")
    assert len(attempts._failed) == ADDRESSES


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fd00:1:2:3:4::5", "fd00:1:2:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
    ],
)
def test_addresses_of_the_same_client_count_as_one_place(address, place):
    assert place_of(address) == place
