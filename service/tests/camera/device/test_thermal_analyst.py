"""Frames of temperatures with masked parts."""

import numpy as np
from harness.settings import HEAT

from embereye.camera.device.picture_analyst import AnalysedFrame
from embereye.camera.device.thermal_analyst import ThermalAnalyst
from embereye.camera.scheduling.mailbox import Picture
from embereye.levels import Level
from embereye.units import SECOND
from embereye.v1.types_pb2 import Mask, Radiometry
from embereye.wire.radiometric import read_header, wrap

DICE = np.random.default_rng(4)
WIDTH, HEIGHT = 80, 60


def below(share: float) -> Mask:
    return Mask(x=[0, 1, 1, 0], y=[share, share, 1, 1])


def analysed(
    analyst: ThermalAnalyst, hottest: float, row: int, seconds: float = 0, *, shown: bool = False
) -> AnalysedFrame:
    celsius = DICE.normal(22, 0.5, (HEIGHT, WIDTH))
    celsius[row : row + 4, 30:34] = hottest
    data = wrap(WIDTH, HEIGHT, np.round((celsius + 273.15) * 100).astype("<u2").tobytes())
    time_ns = int((1000 + seconds) * SECOND)
    frame = Picture(read_header(data), time_ns, time_ns, data=data, radiometric=True)
    return analyst.analyse_temperatures(frame, shown=shown)


def shown(analyst: ThermalAnalyst, hottest: float, row: int, seconds: float = 0) -> tuple[Level, str]:
    seen = analysed(analyst, hottest, row, seconds)
    return seen.observation.level, seen.fault


def test_a_camera_sees_unmasked_pixels_however_few() -> None:
    analyst = ThermalAnalyst(HEAT, Radiometry(), [below(0.3)])
    assert {shown(analyst, 90, 40, number / 9) for number in range(90)} == {(Level.CLEAR, "")}
    assert [shown(analyst, 90, 4, 10 + number / 9) for number in range(4)][-1] == (Level.CRITICAL, "")


def test_a_completely_masked_camera_sees_nothing() -> None:
    assert shown(ThermalAnalyst(HEAT, Radiometry(), [below(0)]), 90, 4)[1] == "only 0 of 0 pixels are measured"


def test_every_frame_is_drawn_while_somebody_looks() -> None:
    analyst = ThermalAnalyst(HEAT, Radiometry())
    drawn = [analysed(analyst, 22, 4, number / 9, shown=number >= 9).clip_frame for number in range(18)]
    assert len(list(filter(None, drawn[:9]))) <= 4
    assert all(drawn[9:])
