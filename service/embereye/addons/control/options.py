"""The file of `embereye hub --actuators`: rules from zones to outputs of actuators (pure)."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from embereye.process.fields import Fields
from embereye_cli.declared import read_declared

OPTION = "--actuators"
MAX_ACTUATORS = 64
MAX_RULES = 256  # of one actuator
PRE_ALARM, ALARM, FAULT = "pre-alarm", "alarm", "fault"
RESET, ACKNOWLEDGED = "reset", "acknowledged"


@dataclass(frozen=True)
class Rule:
    """The value of an output while a zone is in some state."""

    output: str
    value: float  # in the output's unit
    zones: tuple[str, ...]  # patterns of ZONE or NAMESPACE/ZONE
    when: str = ALARM  # PRE_ALARM, ALARM or FAULT
    until_acknowledged: bool = False  # it ends with the acknowledgement, not with the reset

    def has_zone(self, namespace: str, zone: str) -> bool:
        """True if the rule follows the zone."""
        return any(fnmatchcase(name, pattern) for name in (zone, f"{namespace}/{zone}") for pattern in self.zones)


@dataclass(frozen=True)
class ActuatorOptions:
    """An actuator that the hub steers."""

    name: str  # with which it connects
    rules: tuple[Rule, ...]


def read_actuators(path: Path) -> list[ActuatorOptions]:
    """Read the file at `path`; UserError names what is wrong."""
    return read_declared(path, OPTION, parse_actuators)


def parse_actuators(fields: Fields) -> list[ActuatorOptions]:
    """Read the file's content; DeclaredError."""
    return list(fields.unique("actuators", _actuator, most=MAX_ACTUATORS, least=1).values())


def _actuator(fields: Fields) -> ActuatorOptions:
    return ActuatorOptions(fields.text("name"), tuple(fields.items("rules", _rule, most=MAX_RULES, least=1)))


def _rule(fields: Fields) -> Rule:
    zones = tuple(fields.texts("zones", ...))
    if not zones:
        raise fields.error("zones", 'it is empty. Name zones, or "*" for all.')
    return Rule(
        output=fields.text("output"),
        value=fields.number("value", 1.0),
        zones=zones,
        when=fields.choice("when", (PRE_ALARM, ALARM, FAULT), ALARM),
        until_acknowledged=fields.choice("until", (RESET, ACKNOWLEDGED), RESET) == ACKNOWLEDGED,
    )
