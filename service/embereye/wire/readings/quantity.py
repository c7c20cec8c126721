"""The quantities that a bought device can report, and one reading of them.

A binary quantity is 1 (on) or 0 (off). All others have the unit that is given here; the reader of a message converts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity: its unit, and its meaning for people. `unit` is empty for a binary one."""

    name: str
    meaning: str
    unit: str = ""

    @property
    def is_binary(self) -> bool:
        """True if its values are on and off."""
        return not self.unit


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("smoke", "the detector reports smoke"),
        Quantity("heat", "the detector reports heat"),
        Quantity("flame", "the detector reports a flame"),
        Quantity("carbonMonoxide", "the detector reports carbon monoxide"),
        Quantity("gas", "the detector reports combustible gas"),
        Quantity("test", "its test button was pressed"),
        Quantity("tamper", "it was taken off its base, or opened"),
        Quantity("batteryLow", "its battery is nearly empty"),
        Quantity("fault", "it reports a fault, or the end of its life"),
        Quantity("offline", "its gateway reports that it cannot be reached"),
        Quantity("temperature", "air temperature", "°C"),
        Quantity("carbonMonoxideLevel", "concentration of carbon monoxide", "ppm"),
        Quantity("smokeDensity", "smoke density", "dB/m"),
        Quantity("humidity", "relative humidity", "%"),
        Quantity("battery", "charge of its battery", "%"),
    )
}


Quality = Literal["good", "uncertain", "bad"]

# Conversions to the units above: unit → factor and offset. A unit's own name is in QUANTITIES.
CONVERSIONS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "temperature": {"C": (1.0, 0.0), "°F": (5 / 9, -160 / 9), "F": (5 / 9, -160 / 9), "K": (1.0, -273.15)},
    "carbonMonoxideLevel": {"ppb": (0.001, 0.0), "mg/m3": (0.859, 0.0), "mg/m³": (0.859, 0.0)},  # at 20 °C
    "humidity": {"1": (100.0, 0.0)},
    "battery": {"1": (100.0, 0.0)},
}


def convert(quantity: str, value: float, unit: str) -> float:
    """Convert `value` in `unit` to the unit of `quantity`; ValueError if the unit is none of it."""
    standard = QUANTITIES[quantity].unit
    if unit in ("", standard):
        return value
    known = CONVERSIONS.get(quantity, {})
    if unit not in known:
        units = ", ".join(filter(None, (standard, *known))) or "none"
        raise ValueError(f'{quantity}: unit "{unit[:20]}" is not one of: {units}')
    factor, offset = known[unit]
    return value * factor + offset


UNITS = {unit for known in CONVERSIONS.values() for unit in known} | {
    quantity.unit for quantity in QUANTITIES.values() if quantity.unit
}


def split_unit(quantity: str, text: str) -> tuple[str, str]:
    """Split `PATH in UNIT`; the unit is '' if none is named. ValueError if it is none of `quantity`."""
    path, _, unit = text.rpartition(" in ")
    if not path or unit not in UNITS:
        return text, ""
    convert(quantity, 0.0, unit)
    return path, unit


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a quantity."""

    quantity: str  # a name in QUANTITIES
    value: float
    quality: Quality = "good"  # as the device says; a bad value is not used
    note: str = ""  # for people, if it is an alarm: what the reader of the message found


@dataclass(frozen=True, slots=True)
class Report:
    """The content of one message about a device."""

    readings: tuple[Reading, ...] = ()
    is_check_in: bool = True  # the message proves that the device lives
    seen_ns: int = 0  # when the gateway heard the device, nanoseconds since the Unix epoch; 0: not said
