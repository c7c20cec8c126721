"""The quantities that a bought device can report, and one reading of them.

A binary quantity is 1 (on) or 0 (off). All others have the unit that is given here; the reader of a message converts.
"""

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a quantity."""

    quantity: str  # a name in QUANTITIES
    value: float


@dataclass(frozen=True, slots=True)
class Report:
    """The content of one message about a device."""

    readings: tuple[Reading, ...] = ()
    is_check_in: bool = True  # the message proves that the device lives
    seen_ns: int = 0  # when the gateway heard the device, nanoseconds since the Unix epoch; 0: not said
