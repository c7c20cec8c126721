"""Measuring areas of thermal pictures."""

import numpy as np
import pytest
from harness.settings import HEAT

from embereye.detect.thermal.areas import AreaWatch, drawn
from embereye.detect.thermal.heat import extremes
from embereye.detect.thermal.radiometric import RadiometricWatch
from embereye.levels import Level
from embereye.sensor.device.frames import FrameAnalysis
from embereye.units import SECOND
from embereye.v1.types_pb2 import Area, Mask, Radiometry

LEFT = Mask(x=[0, 0.5, 0.5, 0], y=[0, 0, 1, 1])
DICE = np.random.default_rng(3)


def area(kind=Area.KIND_HIGHEST, limit=80.0, outline=LEFT, name="belt"):
    return Area(name=name, kind=kind, limit=limit, outline=outline)


def frame(left=22.0, right=22.0, pixel=None):
    celsius = DICE.normal(0, 0.3, (24, 32)).astype(np.float32)
    celsius[:, :16] += left
    celsius[:, 16:] += right
    if pixel is not None:
        celsius[10, 4] = pixel
    return celsius


def analyse(frames, pictures, start=0.0, rate=8):
    """Analyse `pictures`, one every 1/rate s; return the assessments."""
    return [
        frames.analyse(bytes([n % 256]), celsius, extremes(celsius[None])[0], int((1000 + start + n / rate) * SECOND))
        for n, celsius in enumerate(pictures)
    ]


def test_a_polygon_covers_the_pixels_whose_centres_are_in_it():
    assert (
        drawn([0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], 4, 8).tolist() == [[True] * 4 + [False] * 4] * 2 + [[False] * 8] * 2
    )


def test_an_area_smaller_than_a_pixel_is_that_pixel():
    assert np.argwhere(drawn([0.51, 0.52, 0.52], [0.51, 0.51, 0.52], 24, 32)).tolist() == [[12, 16]]


def test_a_belt_that_is_always_hot_is_calm_below_its_own_limit():
    frames = FrameAnalysis("s-1", HEAT, [area()])
    assert {seen.level for seen in analyse(frames, [frame(left=70) for _ in range(40)])} == {Level.CLEAR}


def test_a_belt_over_its_limit_alarms_with_its_name_value_and_limit():
    frames = FrameAnalysis("s-1", HEAT, [area()])
    seen = analyse(frames, [frame(left=70), *(frame(left=70, pixel=84) for _ in range(4))])
    assert [assessment.level for assessment in seen] == [
        Level.CLEAR,
        Level.PRE_ALARM,
        Level.PRE_ALARM,
        Level.ALARM,
        Level.ALARM,
    ]
    assert seen[-1].measured[0] == ("area.belt.highest", 84.0, 80.0, "°C")
    assert (seen[-1].hottest, seen[-1].score) == ((10, 4), 0.7)


def test_a_fire_beside_the_belt_is_judged_by_the_fleets_thresholds():
    frames = FrameAnalysis("s-1", HEAT, [area()])
    seen = analyse(frames, [frame(left=70, right=95)])[-1]
    assert (seen.level, seen.measured[0][0], seen.measured[-1][0]) == (Level.CRITICAL, "temperature.max", "spot.growth")


def test_a_mean_is_compared_in_addition_to_the_fleets_thresholds():
    frames = FrameAnalysis("s-1", HEAT, [area(Area.KIND_MEAN, 40)])
    seen = analyse(frames, [frame(left=42) for _ in range(4)])[-1]
    assert (seen.level, seen.measured[0][0]) == (Level.ALARM, "area.belt.mean")
    assert seen.measured[0][1] == pytest.approx(42, abs=0.2)
    assert (
        analyse(FrameAnalysis("s-1", HEAT, [area(Area.KIND_MEAN, 40)]), [frame(pixel=95)])[-1].level == Level.CRITICAL
    )


def test_a_rise_is_compared_from_the_first_seconds_on():
    frames = FrameAnalysis("s-1", HEAT, [area(Area.KIND_RISE, 3)])
    seen = analyse(frames, [frame(left=22 + max(second - 20, 0) / 10) for second in range(120)], rate=1)
    assert (seen[19].level, seen[-1].level, seen[-1].measured[0][0]) == (Level.CLEAR, Level.ALARM, "area.belt.rise")
    assert 3 <= seen[-1].measured[0][1] <= 7
    assert seen[-1].measured[0][3] == "°C/min"


def test_an_alarm_ends_three_degrees_below_the_limit():
    frames = FrameAnalysis("s-1", HEAT, [area()])
    pictures = [frame(left=60, pixel=value) for value in (84, 84, 84, 78, 76)]
    assert [seen.level for seen in analyse(frames, pictures)][2:] == [Level.ALARM, Level.ALARM, Level.CLEAR]


def test_areas_that_cover_the_whole_picture_replace_the_fleets_thresholds():
    everything = Mask(x=[0, 1, 1, 0], y=[0, 0, 1, 1])
    seen = analyse(FrameAnalysis("s-1", HEAT, [area(outline=everything)]), [frame(left=70, right=70)])[-1]
    assert (seen.level, seen.blind) == (Level.CLEAR, "")


def test_an_area_without_measured_pixels_is_unknown_and_never_clear():
    celsius = frame()
    celsius[:, :16] = np.nan
    watch = AreaWatch([area()], 24, 32)
    whole = FrameAnalysis("s-1", HEAT).analyse(b"", frame(), extremes(frame()[None])[0], SECOND)
    seen = watch.combined(whole, celsius, SECOND)
    assert (seen.level, seen.blind) == (Level.UNSPECIFIED, "area belt: none of its pixels is measured")


def test_changed_areas_apply_and_unchanged_ones_keep_their_level():
    frames = FrameAnalysis("s-1", HEAT, [area()])
    assert analyse(frames, [frame(left=70, pixel=84) for _ in range(3)])[-1].level == Level.ALARM
    frames.configure(HEAT, [area()])
    assert analyse(frames, [frame(left=70, pixel=78)], start=1)[-1].level == Level.ALARM
    frames.configure(HEAT, [area(limit=100)])
    assert analyse(frames, [frame(left=70, pixel=84)], start=2)[-1].level == Level.CLEAR


def test_raw_counts_cannot_be_compared_with_an_areas_limit():
    frames = FrameAnalysis("s-1", HEAT, [area()])
    frames.analyse(bytes(1536), None, None, SECOND)
    assert frames.degraded.startswith("without its calibration, its areas are not measured: belt.")


def test_a_radiometric_camera_measures_its_areas():
    watch = RadiometricWatch(HEAT, Radiometry(), [area(outline=Mask(x=[0, 0.5, 0.5, 0], y=[0, 0, 1, 1]))])
    for number in range(4):
        celsius = DICE.normal(22, 0.1, (60, 80))
        celsius[:, :40] = 70 + DICE.normal(0, 0.1, (60, 40))
        if number:
            celsius[30:34, 10:14] = 84
        heat = watch.observe(np.round((celsius + 273.15) * 100).astype(np.uint16), int((1000 + number) * SECOND))
        if not number:
            assert heat.assessment.level == Level.CLEAR
    assert (heat.assessment.level, heat.assessment.measured[0][0], heat.fault) == (Level.ALARM, "area.belt.highest", "")
    assert heat.box[:2] == (10 / 80, 30 / 60)
