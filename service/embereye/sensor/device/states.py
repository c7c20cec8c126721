"""The states that a bought device reports: alarms, low battery, tamper, test button, and slow measurements.

Such a device decides itself that there is smoke, and says so once; then it is silent until that ends. So its alarm
counts until it says otherwise: `repeat` renews the signs of alarms that are on, because a sign that nobody repeats ends
after some seconds. A device in test mode raises no alarm for `TEST_NS`.
"""

from collections.abc import Iterable
from dataclasses import replace

from embereye.detect.sensing.states import ALARMS, BATTERY_LOW_PERCENT, assess_level, assess_state, level_of
from embereye.detect.sensing.thresholds import Assessment
from embereye.levels import Kind, Level
from embereye.sensor.device.levels import Levels
from embereye.shard.evidence.episodes import Sign
from embereye.units import MINUTE, SECOND
from embereye.v1.shard_pb2 import SensorSettings
from embereye.wire.readings.quantity import QUANTITIES, Quality, Reading

TEST_NS = MINUTE  # nanoseconds after its test button for which a device raises no alarm
REPEAT_NS = 2 * SECOND  # nanoseconds between two renewals of a sign; shorter than a sign's hold
LEVELS = {"temperature": Kind.HEAT, "carbonMonoxideLevel": Kind.GAS}  # quantity → kind of its sign


class StateAnalysis:
    """The states of one device, by quantity. Times are nanoseconds of the process's timeline."""

    def __init__(self, settings: SensorSettings, levels: Levels) -> None:
        self.values: dict[str, float] = {}
        self.tested_ns = 0  # when its test button was pressed last; 0: never, as far as is known
        self._settings = settings
        self._levels = levels
        self._repeated_ns = 0
        self._doubted: dict[str, Quality] = {}  # quantity → the quality of its latest value, unless that is good
        self._notes: dict[str, str] = {}  # quantity → note of its latest value
        self._high: dict[str, int] = {}  # measured quantity → successive readings at alarm level

    def configure(self, settings: SensorSettings) -> None:
        """Use changed thresholds from now on."""
        self._settings = settings

    def analyse(self, readings: Iterable[Reading], now_ns: int) -> list[Sign]:
        """Note `readings` and return the signs that follow."""
        names: set[str] = set()
        notable = self._levels.is_open()  # nearly all messages say that nothing happens: they need no assessment
        for reading in readings:
            name, value = reading.quantity, reading.value
            if reading.quality != "good":
                self._doubted[name] = reading.quality
                if reading.quality == "bad":
                    continue
            elif name in self._doubted:
                del self._doubted[name]
            names.add(name)
            if name == "test" and value and not self.values.get("test"):
                self.tested_ns = now_ns
            self.values[name] = value
            if reading.note or name in self._notes:
                self._notes[name] = reading.note
            if name in ALARMS:
                notable = notable or bool(value)
            elif name in LEVELS:
                level = level_of(name, value, Level.CLEAR, self._settings)
                self._high[name] = self._high.get(name, 0) + 1 if level >= Level.ALARM else 0
                notable = notable or level > Level.CLEAR
        return self._assess(names, now_ns) if notable else []

    def repeat(self, now_ns: int) -> list[Sign]:
        """Return the signs of the states that are on or have just ended, if they are due again."""
        if now_ns - self._repeated_ns < REPEAT_NS or not self._levels.is_open():
            return []
        self._repeated_ns = now_ns
        return self._assess(self.values.keys(), now_ns)

    def is_testing(self, now_ns: int) -> bool:
        """True shortly after the test button was pressed."""
        return bool(self.tested_ns) and now_ns - self.tested_ns < TEST_NS

    @property
    def faults(self) -> dict[str, str]:
        """The reasons why the device cannot watch, by quantity."""
        faults = {name: QUANTITIES[name].meaning for name in ("tamper", "fault", "offline") if self.values.get(name)}
        for name, quality in self._doubted.items():
            if quality == "bad":
                faults[name] = f"it reports bad values of {name}"
        return faults

    @property
    def degraded(self) -> str:
        """The limitation of a device that watches; '' if there is none."""
        charge = self.values.get("battery")
        if self.values.get("batteryLow"):
            return "its battery is nearly empty" + (f": {charge:.0f} %" if charge is not None else "")
        if charge is not None and charge <= BATTERY_LOW_PERCENT:
            return f"its battery is nearly empty: {charge:.0f} %"
        uncertain = ", ".join(name for name, quality in self._doubted.items() if quality == "uncertain")
        return f"it reports uncertain values of {uncertain}" if uncertain else ""

    def _assess(self, names: Iterable[str], now_ns: int) -> list[Sign]:
        signs: list[Sign] = []
        testing = self.is_testing(now_ns)
        # Several quantities may be signs of one kind, as "gas" and "carbonMonoxide" are: the strongest counts.
        for kind in {kind for name in names if (kind := ALARMS.get(name) or LEVELS.get(name)) is not None}:
            assessments = [
                assess_state(name, on=bool(value) and not testing, note=self._notes.get(name, ""))
                if name in ALARMS
                else self._measured(name, value, kind)
                for name, value in self.values.items()
                if (ALARMS.get(name) or LEVELS.get(name)) is kind
            ]
            signs += self._levels.assess(kind, max(assessments, key=lambda entry: (entry.level, entry.score)), now_ns)
        return signs

    def _measured(self, name: str, value: float, kind: Kind) -> Assessment:
        """Assess a measurement. One implausible value, such as the 85 °C of a restarting DS18B20, is no alarm."""
        assessed = assess_level(name, value, self._levels.in_force(kind), self._settings)
        if assessed.level < Level.ALARM or self._high.get(name, 0) > 1 or self._levels.in_force(kind) >= Level.ALARM:
            return assessed
        return replace(assessed, level=Level.PRE_ALARM, note="one reading: an alarm needs two in a row")
