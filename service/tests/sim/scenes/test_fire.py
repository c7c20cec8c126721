"""Scripted fires."""

import pytest

from embereye.process.lifecycle import UserError
from embereye.sim.scenes.fire import Fire, intensity, parse_fire


def test_a_fire_grows_with_the_square_of_time_and_then_cools_down() -> None:
    fire = Fire(at=10, duration=60)
    assert [fire.intensity(second) for second in (0, 10, 20, 30, 70)] == [0, 0, 0.25, 1, 1]
    assert fire.intensity(75) == pytest.approx(0.368, abs=1e-3)
    assert fire.intensity(200) < 1e-9


def test_a_short_fire_burns_fully_for_half_of_its_time() -> None:
    fire = Fire(at=0, duration=4)
    assert [fire.intensity(second) for second in (1, 2, 4)] == [0.25, 1, 1]


@pytest.mark.parametrize(
    ("fire", "reached"),
    [
        (Fire(0, 1), ["a", "b"]),
        (Fire(0, 1, device="a"), ["a"]),
        (Fire(0, 1, zone="yard"), ["b"]),
        (Fire(0, 1, zone="roof"), []),
    ],
)
def test_a_fire_is_visible_to_its_device_its_zone_or_everything(fire: Fire, reached: list[str]) -> None:
    devices = {"a": "hall", "b": "yard"}
    assert [name for name, zone in devices.items() if fire.is_visible_to(name, zone)] == reached
    assert [name for name, zone in devices.items() if intensity((fire,), name, zone, 0.9)] == reached


def test_a_fire_is_parsed_from_its_text() -> None:
    assert parse_fire("at=5,for=30,zone=hall") == Fire(5, 30, zone="hall")
    assert parse_fire("at=0, device=a") == Fire(0, 60, device="a")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", '"" is not one of'),
        ("for=3", "at= is not a number"),
        ("at=-1", "at=-1 is not a number of seconds"),
        ("at=nan", "at=nan is not"),
        ("at=1,for=0", "for=0 is not"),
        ("at=1,at=2", '"at=2" is not one of'),
        ("at=1,where=x", '"where=x" is not one of'),
        ("at=1,device=a,zone=b", "not both"),
    ],
)
def test_an_unreadable_fire_is_refused_with_the_problem(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_fire(text)


def test_a_fire_burns_from_its_start_to_its_end() -> None:
    fire = Fire(10, 5, zone="hall")
    assert [fire.seconds_burning(seconds) for seconds in (9.9, 10, 14, 15)] == [-1, 0, 4, -1]
