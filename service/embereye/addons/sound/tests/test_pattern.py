"""Synthesised alarms in rooms are heard among noise, and nothing else is taken for one."""

import numpy as np
import pytest

from embereye.addons.sound.bench import WITHIN, cases, hear, judging
from embereye.addons.sound.pattern import RATE, AlarmSounds, blocks, describe
from embereye_cli.main import main

from .synthesis import NOISES, alarm, at_ratio, beeper, room

ECHOING = (40031, 40111)  # rooms in which a gap is nearly as loud as the first pulse
SILENCE = np.zeros(2 * RATE, np.float32)  # before an alarm


def heard(samples):
    """The patterns that are heard in `samples`, each with the second at which it is known, and the detector."""
    sounds, known = AlarmSounds(), {}
    for block in blocks(samples, 0.5):
        sounds.feed(block)
        for pattern in sounds.alarms:
            known.setdefault(pattern, sounds.seconds)
    return known, sounds


@pytest.mark.parametrize("noise", ["speech", "music", "machine"])
@pytest.mark.parametrize(
    ("pattern", "tone", "tempo", "decay"),
    [
        ("smoke", 3100.0, 1.0, 0.4),
        ("smoke", 2800.0, 1.06, 0.8),
        ("smoke", 520.0, 1.0, 0.4),
        ("carbonMonoxide", 3400.0, 1.0, 0.3),
        ("carbonMonoxide", 520.0, 0.96, 0.3),
    ],
)
def test_an_alarm_in_a_room_is_heard_within_twelve_seconds(noise, pattern, tone, tempo, decay):
    dice = np.random.default_rng(7)
    sound = np.concatenate((SILENCE, alarm(pattern, 12.0, tone=tone, tempo=tempo, drift=0.005)))
    known, sounds = heard(at_ratio(room(sound, dice, decay=decay), NOISES[noise](14.0, dice), 15.0))
    assert list(known) == [pattern]
    assert sounds.alarms[pattern].frequency == pytest.approx(tone, rel=0.04)


@pytest.mark.parametrize("noise", NOISES)
def test_two_minutes_of_noise_are_no_alarm(noise):
    known, _ = heard(at_ratio(np.zeros(120 * RATE, np.float32), NOISES[noise](120.0, np.random.default_rng(3)), 0.0))
    assert known == {}


@pytest.mark.slow
def test_beepers_with_the_tone_of_an_alarm_are_none():
    for seed in range(20):
        dice = np.random.default_rng(seed)
        known, _ = heard(room(beeper(60.0, dice), dice, decay=dice.uniform(0.1, 0.8)) * 0.1)
        assert known == {}, seed


def beeping(device, seconds=30.0):
    """The sound of `device` in a quiet room."""
    quiet = np.random.default_rng(1).standard_normal(int(seconds * RATE)) * 0.0003
    return (0.1 * judging.beeps(device, seconds, 3100.0) + quiet).astype(np.float32)


@pytest.mark.parametrize(
    "device",
    [
        "reversing lorry", "three every eight seconds", "four every three seconds", "five short every six seconds",
        "three short every six seconds",
    ],
)  # fmt: skip
def test_pulses_with_other_pauses_are_no_alarm(device):
    assert heard(beeping(device))[0] == {}


@pytest.mark.slow
def test_nothing_that_beeps_in_a_building_is_an_alarm():
    assert [device for device in judging.BEEPS if heard(beeping(device, 40.0))[0]] == []


@pytest.mark.parametrize(
    ("pattern", "seed"), [("smoke", 1), ("smoke", 2), ("carbonMonoxide", 3), ("carbonMonoxide", 4)]
)
def test_an_alarm_whose_phases_have_their_own_tolerance_is_heard(pattern, seed):
    dice = np.random.default_rng(seed)
    sound = np.concatenate((SILENCE, judging.alarm(pattern, 12.0, dice, tone=3100.0)))
    assert list(heard(judging.room(0.1 * sound, dice, decay=0.5))[0]) == [pattern]


@pytest.mark.parametrize("seed", ECHOING)
def test_short_pulses_of_a_low_tone_are_heard_although_echoes_fill_the_gaps(seed):
    (case,) = cases(1, first=seed)
    known, patterns = hear(case)
    assert (patterns, known <= WITHIN) == ({"carbonMonoxide"}, True)


@pytest.mark.parametrize("tones", [(451.0, 474.0, 454.0), (426.0, 434.0, 436.0), (530.0, 545.0, 533.0)])
def test_three_vowels_in_the_time_of_a_signal_but_of_other_tones_are_no_alarm(tones):
    pulses = np.concatenate([alarm("smoke", 1.0, tone=tone) for tone in tones])
    group = np.concatenate((pulses, np.zeros(RATE, np.float32)))
    steady = np.concatenate([alarm("smoke", 4.0, tone=530.0)] * 3)
    assert heard(np.concatenate((SILENCE, group, group, group, SILENCE)))[0] == {}
    assert list(heard(np.concatenate((SILENCE, steady, SILENCE)))[0]) == ["smoke"]


@pytest.mark.parametrize("steps", [(0, 4, 9), (0, 5, 9)])
def test_three_notes_of_a_riff_at_unequal_distances_are_no_alarm(steps):
    """Sixteenths at 64 beats a minute, as `embereye bench sound --seed 20211 --kinds music` plays them."""
    step, sound = 15 / 64.4, np.zeros(16 * RATE, np.float32)
    for start in (2 + step * (number + 16 * bar) for bar in range(4) for number in steps):
        part = slice(int(start * RATE), int((start + 2 * step) * RATE))
        sound[part] = alarm("smoke", 1.0, tone=2959.0)[: part.stop - part.start]
    assert heard(room(0.1 * sound, np.random.default_rng(1), decay=0.4))[0] == {}


def test_five_minutes_of_noise_are_listened_to_by_a_command(capsys):
    assert main(["bench", "sound", "--hours", "0.01", "--kinds", "music"]) == 0
    assert capsys.readouterr().out.startswith("0 false alarms in 0.1 h (0.1 h of music: 0); 95 % sure of at most ")


def test_the_alarm_ends_after_the_sound_and_says_what_it_was():
    quiet = np.random.default_rng(1).standard_normal(30 * RATE).astype(np.float32) * 0.001
    sounding = quiet.copy()
    sounding[2 * RATE : 14 * RATE] += 0.1 * alarm("smoke", 12.0, tone=3110.0)
    sounds = AlarmSounds()
    texts, states = [], []
    for block in blocks(sounding, 0.5):
        sounds.feed(block)
        states.append("smoke" in sounds.alarms)
        texts += [describe(alarm) for alarm in sounds.alarms.values()]
    assert texts[-1] == "smoke-alarm sound (three pulses, 3,110 Hz) for 8 s"
    assert any(states)
    assert not states[-1]


def test_silence_and_short_pieces_are_no_error():
    sounds = AlarmSounds()
    for size in (0, 1, 100, 511, 513, 20_000):
        assert sounds.feed(np.zeros(size, np.float32)) == []
    assert sounds.alarms == {}


def test_the_size_of_pieces_makes_no_difference():
    sound = np.concatenate((SILENCE, 0.1 * alarm("smoke", 14.0)))
    alarms = []
    for seconds in (0.013, 0.5, 14.0):
        sounds = AlarmSounds()
        for block in blocks(sound, seconds):
            sounds.feed(block)
        alarm_heard = sounds.alarms["smoke"]
        alarms.append((alarm_heard.since, alarm_heard.until, alarm_heard.groups, round(alarm_heard.frequency, 1)))
    assert alarms[0] == alarms[1] == alarms[2]


def test_memory_does_not_grow():
    sounds = AlarmSounds()
    for _ in range(60):
        sounds.feed(np.zeros(RATE, np.float32))
    assert len(sounds._levels) < 1000
