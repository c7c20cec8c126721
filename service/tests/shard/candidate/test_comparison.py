"""The comparison of a candidate's signs with those in force."""

from collections.abc import Iterable

from embereye.levels import Kind, Level, Sense
from embereye.shard.candidate.comparison import SAME_NS, TOLERANCE_NS, Comparison, Difference, Side
from embereye.shard.evidence.episodes import Sign
from embereye.units import SECOND
from embereye.v1.types_pb2 import Term

CLEAR, PRE_ALARM, ALARM = Level.CLEAR, Level.PRE_ALARM, Level.ALARM
GAS_NS = TOLERANCE_NS[Kind.GAS]
Step = tuple[float, Side, Level]  # seconds, side, level of its sign


def sign(level: Level, device: str = "s") -> Sign:
    return Sign(device, "hall", Kind.GAS, Sense.SENSOR, level, 0.5, [Term(name="gas", value=5100, threshold=5000)])


def differences(steps: Iterable[Step], until: float = 300) -> list[Difference]:
    comparison, listed, waiting = Comparison(), list[Difference](), sorted(steps)
    for second in range(int(until)):
        now_ns = second * SECOND
        while waiting and waiting[0][0] <= second:
            _, side, level = waiting.pop(0)
            comparison.note(side, sign(level), now_ns)
        listed += comparison.due(now_ns)
    return listed


def summary(steps: Iterable[Step], until: float = 300) -> list[tuple[int, str, Level]]:
    return [(entry.at_ns // SECOND, entry.which, entry.level) for entry in differences(steps, until)]


def test_the_same_alarm_on_both_sides_is_no_difference() -> None:
    assert not summary([(1, "inForce", ALARM), (1, "candidate", ALARM), (9, "inForce", CLEAR), (9, "candidate", CLEAR)])


def test_an_alarm_of_only_one_side_is_one_difference() -> None:
    assert summary([(5, "candidate", ALARM), (30, "candidate", CLEAR)]) == [(5, "candidate", ALARM)]
    assert summary([(5, "inForce", ALARM)]) == [(5, "inForce", ALARM)]


def test_an_alarm_beside_a_pre_alarm_is_a_difference() -> None:
    steps: list[Step] = [(5, "candidate", PRE_ALARM), (5, "inForce", PRE_ALARM), (8, "candidate", ALARM)]
    assert summary(steps) == [(8, "candidate", ALARM)]


def test_an_alarm_within_the_tolerance_is_the_same() -> None:
    late = GAS_NS / SECOND
    assert not summary([(20, "candidate", ALARM), (20 + late, "inForce", ALARM)])
    assert not summary([(20, "inForce", ALARM), (20 + late, "candidate", ALARM)])


def test_an_alarm_that_follows_later_is_one_difference() -> None:
    late = GAS_NS / SECOND + 2
    assert summary([(20, "candidate", ALARM), (20 + late, "inForce", ALARM)]) == [(20, "candidate", ALARM)]


def test_a_flickering_sign_is_one_difference_until_it_was_away() -> None:
    flicker: list[Step] = [(float(second), "candidate", ALARM if second % 4 == 0 else CLEAR) for second in range(40)]
    assert summary(flicker) == [(0, "candidate", ALARM)]
    again = 40 + SAME_NS // SECOND
    assert summary([*flicker, (again, "candidate", ALARM)]) == [(0, "candidate", ALARM), (again, "candidate", ALARM)]


def test_data_that_the_candidate_did_not_get_is_not_compared() -> None:
    comparison = Comparison()
    comparison.note("inForce", sign(ALARM), 0)
    comparison.note("inForce", sign(ALARM, "other"), 0)
    comparison.note_unseen("s", SECOND)
    assert [entry.device for entry in comparison.due(GAS_NS + SECOND)] == ["other"]


def test_a_difference_names_its_terms_and_the_episode_of_its_report() -> None:
    comparison = Comparison()
    comparison.note("inForce", sign(ALARM), 0, "")
    comparison.note("inForce", sign(ALARM), SECOND, "episode")
    (difference,) = comparison.due(GAS_NS + SECOND)
    assert (difference.episode, list(difference.terms)) == ("episode", [("gas", 5100.0, 5000.0, "1")])


def test_a_candidates_sign_beside_unseen_data_is_compared_later_if_it_lasts() -> None:
    def compared(still: bool, in_force: bool) -> list[Difference]:
        comparison = Comparison()
        comparison.note_unseen("s", 0)
        comparison.note("candidate", sign(ALARM), SECOND)
        if not still:
            comparison.note("candidate", sign(CLEAR), 2 * SECOND)
        if in_force:
            comparison.note("inForce", sign(ALARM), SECOND)
        return [each for second in range(1, 60) for each in comparison.due(second * SECOND)]

    assert [entry.which for entry in compared(still=True, in_force=False)] == ["candidate"]
    assert not compared(still=True, in_force=True)
    assert not compared(still=False, in_force=False)
