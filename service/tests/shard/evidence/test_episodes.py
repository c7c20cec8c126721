from embereye.levels import Kind, Level, Sense
from embereye.shard.evidence.episodes import Episodes, Sign
from embereye.units import SECOND


def sign(level: Level, kind: Kind = Kind.HEAT) -> Sign:
    return Sign("s-01", "hall", kind, Sense.SENSOR, level, 0.5)


def test_a_sign_is_reported_when_it_starts_and_then_once_a_second() -> None:
    episodes = Episodes("default/sensors/f")
    reported = [tenth for tenth in range(25) if episodes.observe(sign(Level.PRE_ALARM), SECOND + tenth * SECOND // 10)]
    assert reported == [0, 10, 20]


def test_a_higher_level_is_reported_at_once_and_retained_while_the_sign_lasts() -> None:
    episodes = Episodes("default/sensors/f")
    first = episodes.observe(sign(Level.PRE_ALARM), SECOND)
    second = episodes.observe(sign(Level.ALARM), SECOND + 1)
    third = episodes.observe(sign(Level.PRE_ALARM), 3 * SECOND)
    assert first
    assert second
    assert third
    assert [r.level for r in (first, second, third)] == [Level.PRE_ALARM, Level.ALARM, Level.ALARM]
    assert first.episode == second.episode == third.episode
    assert len({first.id, second.id, third.id}) == 3


def test_a_flickering_sign_is_one_episode_and_its_end_is_reported_once() -> None:
    episodes = Episodes("default/sensors/f")
    first = episodes.observe(sign(Level.ALARM), SECOND)
    assert episodes.observe(sign(Level.CLEAR), 3 * SECOND) is None
    again = episodes.observe(sign(Level.ALARM), 4 * SECOND)
    assert first
    assert again
    assert first.episode == again.episode
    end = episodes.observe(sign(Level.CLEAR), 8 * SECOND)
    assert end
    assert end.level == Level.CLEAR
    assert end.until_ns == 4 * SECOND
    assert episodes.observe(sign(Level.CLEAR), 9 * SECOND) is None


def test_a_sign_after_a_long_silence_is_a_new_episode() -> None:
    episodes = Episodes("default/sensors/f")
    first = episodes.observe(sign(Level.ALARM), SECOND)
    again = episodes.observe(sign(Level.PRE_ALARM), 3_600 * SECOND)
    assert first
    assert again
    assert again.episode != first.episode
    assert (again.level, again.since_ns) == (Level.PRE_ALARM, 3_600 * SECOND)


def test_an_episode_continues_over_a_silence_within_the_deadline() -> None:
    episodes = Episodes("default/sensors/f")
    episodes.configure(deadline_ns=120 * SECOND)
    reports = [episodes.observe(sign(Level.ALARM), number * 100 * SECOND) for number in range(1, 4)]
    assert len({report.episode for report in reports if report}) == 1


def test_kinds_at_one_device_are_separate_episodes() -> None:
    episodes = Episodes("default/sensors/f")
    heat = episodes.observe(sign(Level.ALARM, Kind.HEAT), SECOND)
    smoke = episodes.observe(sign(Level.ALARM, Kind.SMOKE), SECOND)
    assert heat
    assert smoke
    assert heat.episode != smoke.episode
    assert episodes.is_active("s-01")
    assert not episodes.is_active("s-02")


def test_devices_that_move_to_another_shard_leave_no_episode() -> None:
    episodes = Episodes("default/sensors/f")
    episodes.observe(sign(Level.ALARM), SECOND)
    episodes.forget({"s-01"})
    assert not episodes.is_active("s-01")
    assert episodes.observe(sign(Level.CLEAR), 9 * SECOND) is None
