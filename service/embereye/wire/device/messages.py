"""The messages that a device's lines carry, and the reasons why a line carries none."""

from dataclasses import dataclass

PIXEL_WORDS = 768  # 24 rows of 32 pixels
RAM_WORDS = 834  # pixels, 64 auxiliary words, 2 more
EEPROM_WORDS = 832


@dataclass(frozen=True, slots=True)
class SerialNumber:
    """The identity of the device on this connection."""

    id: str


@dataclass(frozen=True, slots=True)
class LocationId:
    """The place where the device on this connection is mounted."""

    name: str


@dataclass(frozen=True, slots=True)
class SensorReading:
    """One line of readings; None: the line has no such value."""

    location: str | None = None
    smoke_adc: float | None = None  # ADC counts
    flame_adc: float | None = None  # ADC counts
    gas_adc: float | None = None  # ADC counts, MQ-135
    flame_detected: bool | None = None  # digital flame output


@dataclass(frozen=True, slots=True)
class FrameWords:
    """One thermal frame, uncalibrated."""

    location: str | None
    words: bytes  # 768 or 834 big-endian 16-bit words


@dataclass(frozen=True, slots=True)
class Eeprom:
    """The calibration of a device's thermal sensor."""

    id: str | None
    words: bytes  # 832 big-endian 16-bit words


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes that are not a message."""

    reason: str  # one of REASONS: few enough for a metric's label
    length: int  # bytes, without the blanks around them and the `!`


Message = SerialNumber | LocationId | SensorReading | FrameWords | Eeprom | Garbage

TOO_LONG = "too long"  # more than MAX_LINE bytes without a `!`
NO_START = "no start"  # no `#` in the line
CUT_OFF = "cut off"  # another line starts before this one ended
UNKNOWN_WORD = "unknown word"
BAD_NAME = "bad name"
BAD_VALUE = "bad value"  # not a finite number
NO_VALUE = "no value"  # a reading without any known key
BAD_FRAME = "bad frame"  # not hexadecimal, or not 768 or 834 words
BAD_EEPROM = "bad eeprom"  # not hexadecimal, or not 832 or 834 words
REASONS = (TOO_LONG, NO_START, CUT_OFF, UNKNOWN_WORD, BAD_NAME, BAD_VALUE, NO_VALUE, BAD_FRAME, BAD_EEPROM)
