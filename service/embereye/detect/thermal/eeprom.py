"""Plausibility of an MLX90640's calibration words, which have no checksum in the chip or on the line.

Most words differ from chip to chip, but those that shift a whole picture are constant, or vary little. The ranges hold
for the datasheet's example, for real devices, and for every device that users have reported as working.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

FIRST_ADDRESS = 0x2400  # of the EEPROM
CONTROL_REGISTER = 0x1901  # in every undamaged chip: chess pattern, 18 bit, 2 Hz


class _Field(NamedTuple):
    word: int  # position in the EEPROM
    name: str
    least: int
    most: int
    value: Callable[[int], int]


def _whole(word: int) -> int:
    return word - 0x10000 if word & 0x8000 else word


def _high_byte(word: int) -> int:
    byte = word >> 8
    return byte - 0x100 if byte & 0x80 else byte


def _low_ten(word: int) -> int:
    low = word & 0x3FF
    return low - 0x400 if low & 0x200 else low


def _nibble(number: int) -> Callable[[int], int]:
    return lambda word: word >> 4 * number & 15


FIELDS = (
    _Field(12, "control register", CONTROL_REGISTER, CONTROL_REGISTER, lambda word: word),
    _Field(16, "slope of the chip's thermometer", 3, 5, _nibble(3)),
    _Field(16, "scale of the offsets by row", 0, 4, _nibble(2)),
    _Field(16, "scale of the offsets by column", 0, 4, _nibble(1)),
    _Field(17, "offset reference", -200, -15, _whole),
    _Field(32, "scale of the sensitivity", 5, 9, _nibble(3)),
    _Field(32, "scale of the sensitivities by pixel", 3, 8, _nibble(0)),
    _Field(33, "sensitivity reference", 4_000, 32_000, lambda word: word),
    _Field(48, "gain", 4_000, 8_000, _whole),
    _Field(49, "chip thermometer at 25 °C", 11_000, 13_500, _whole),
    _Field(50, "chip thermometer per kelvin", 300, 370, _low_ten),
    _Field(51, "supply slope", -125, -70, _high_byte),
    _Field(56, "resolution of the calibration", 2, 2, lambda word: word >> 12),
    _Field(56, "scale of the supply's effect", 1, 8, _nibble(2)),
    _Field(56, "scale of the chip temperature's effect", 2, 9, _nibble(1)),
    _Field(58, "offset of the compensation pixel", -250, -10, _low_ten),
    _Field(63, "steps of the temperature ranges", 2, 2, lambda word: word >> 12),
    _Field(63, "first temperature range", 3, 12, _nibble(1)),
    _Field(63, "second temperature range", 3, 12, _nibble(2)),
)


def implausible_words(words: Sequence[int]) -> tuple[str, ...]:
    """Name the calibration words, of 832, that no working device has; empty if all are plausible."""
    problems: dict[int, str] = {}
    for word, name, least, most, value in FIELDS:
        number = int(words[word])
        if word not in problems and not least <= value(number) <= most:
            problems[word] = f"word 0x{FIRST_ADDRESS + word:04X} (0x{number:04X}): {name}"
    return tuple(problems.values())
