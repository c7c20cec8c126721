"""Thermal pictures as browsers get them."""

import numpy as np

from embereye.wire.thermal_picture import LIMIT, MARK, MISSING, pack_thermal


def test_degrees_are_tenths_and_missing_pixels_have_a_mark() -> None:
    pixels = np.full((24, 32), 21.46, np.float32)
    pixels[0, :4] = (np.nan, -12.34, 450.0, 9_999.0)
    data = pack_thermal(pixels, relative=False)
    values = np.frombuffer(data[2:], ">i2")
    assert data[:2] == MARK + b"\0"
    assert values[:5].tolist() == [MISSING, -123, 4_500, LIMIT, 215]
    assert len(values) == 768


def test_raw_counts_are_sent_as_they_are() -> None:
    data = pack_thermal(np.array([-32_768, 17, 32_767] * 256, np.float32), relative=True)
    assert data[:2] == MARK + b"\1"
    assert np.frombuffer(data[2:], ">i2")[:3].tolist() == [-LIMIT, 17, LIMIT]
