"""The file of `embereye hub --modbus`: panels to write to, a table to serve, and rules from zones to their values.

A rule names one coil or holding register, the zones that it follows, and when it is on. A panel is a Modbus server that
the hub writes to. `serve` is a table that PLCs read from the hub. Both have rules and a heartbeat in the same form.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.process.fields import DeclaredError, Fields, Network
from embereye_cli.declared import read_declared

OPTION = "--modbus"
MAX_PANELS = 32
MAX_RULES = 250  # of one panel, which are written one by one
ZONE = re.compile(r"\*|[^/\s*]+(/[^/\s*]+)?")
PRE_ALARM, ALARM, FAULT, WATCHED, STATE = "pre-alarm", "alarm", "fault", "watched", "state"
RESET, ACKNOWLEDGED = "reset", "acknowledged"


@dataclass(frozen=True, order=True)
class Place:
    """One coil or holding register."""

    kind: str  # "coil" or "register"
    address: int  # 0..65535, as on the wire: manuals often count from 1, 00001 or 40001

    def __str__(self) -> str:
        return f"{self.kind} {self.address}"


@dataclass(frozen=True)
class Rule:
    """The value of one place."""

    place: Place
    when: str  # one of the words above
    zones: tuple[str, ...]  # ZONE or NAMESPACE/ZONE; "*": all
    until: str = RESET  # when an alarm ends: by its reset, or already by its acknowledgement
    on: int = 1
    off: int = 0

    def has_zone(self, namespace: str, zone: str) -> bool:
        """True if the rule follows the zone."""
        return any(name in ("*", zone, f"{namespace}/{zone}") for name in self.zones)


@dataclass(frozen=True)
class Table:
    """All values for one panel, or those that are served."""

    name: str
    rules: Sequence[Rule]
    heartbeat: Place | None = None  # counts up, or toggles, each second while the hub works


@dataclass(frozen=True)
class PanelOptions:
    """A Modbus server to which the hub writes."""

    host: str
    table: Table
    port: int = 502
    unit: int = 1
    timeout: float = 1.0  # seconds for one answer
    period: float = 1.0  # seconds between two writes of all values

    @property
    def name(self) -> str:
        """The panel's name."""
        return self.table.name


@dataclass(frozen=True)
class ServeOptions:
    """The table that PLCs read."""

    port: int
    table: Table
    host: str = "127.0.0.1"
    unit: int = 1
    allow: tuple[Network, ...] = ()  # clients that may read; none: all that reach the port


@dataclass(frozen=True)
class ModbusOptions:
    """The content of the file."""

    panels: Sequence[PanelOptions] = ()
    serve: ServeOptions | None = None


def read_modbus(path: Path) -> ModbusOptions:
    """Read the file at `path`; UserError names what is wrong."""
    return read_declared(path, OPTION, parse_modbus)


def parse_modbus(fields: Fields) -> ModbusOptions:
    """Read the file's content; DeclaredError."""
    panels = fields.unique("panels", _panel, most=MAX_PANELS)
    serve = fields.part("serve", _serve)
    if not panels and serve is None:
        raise DeclaredError("nothing is declared. Add panels, which the hub writes to, or serve, a table to read.")
    return ModbusOptions(tuple(panels.values()), serve)


def _panel(fields: Fields) -> PanelOptions:
    return PanelOptions(
        host=fields.host(),
        table=_table(fields, fields.name()),
        port=fields.whole("port", 1, 65_535, 502),
        unit=fields.whole("unit", 0, 255, 1),
        timeout=fields.seconds("timeoutSeconds", 1.0, 0.1, 30.0),
        period=fields.seconds("periodSeconds", 1.0, 0.1, 10.0),
    )


def _serve(fields: Fields) -> ServeOptions:
    return ServeOptions(
        port=fields.whole("port", 1, 65_535),
        table=_table(fields, "serve"),
        host=fields.host("127.0.0.1"),
        unit=fields.whole("unit", 0, 255, 1),
        allow=fields.networks("allow"),
    )


def _table(fields: Fields, name: str) -> Table:
    heartbeat = fields.part("heartbeat", _place)
    taken = {heartbeat: "the heartbeat"} if heartbeat else {}
    rules = fields.items("rules", lambda rule: _rule(rule, taken), most=MAX_RULES, least=1)
    return Table(name, tuple(rules), heartbeat)


def _rule(fields: Fields, taken: dict[Place, str]) -> Rule:
    place = _place(fields)
    if other := taken.get(place):
        raise fields.error(place.kind, f"{place} is already {other}")
    taken[place] = f"in {fields.place('')}: give one rule several zones"
    when = fields.choice("when", (PRE_ALARM, ALARM, FAULT, WATCHED, STATE), ALARM)
    if when == STATE and place.kind == "coil":
        raise fields.error("when", "a coil cannot have a state's number. Use a register.")
    zones = tuple(fields.texts("zones"))
    if not zones:
        raise fields.missing("zones", 'Name zones, or "*" for all.')
    for index, zone in enumerate(zones):
        if not ZONE.fullmatch(zone):
            raise fields.wrong("zones", 'is not ZONE, NAMESPACE/ZONE or "*"', index)
    on, off = fields.whole("on", 0, 65_535, 1), fields.whole("off", 0, 65_535, 0)
    if on == off or (place.kind == "coil" and {on, off} != {0, 1}):
        raise fields.error("on", f"{on} and off: {off} must differ, and be 0 and 1 for a coil")
    return Rule(place, when, zones, fields.choice("until", (RESET, ACKNOWLEDGED), RESET), on, off)


def _place(fields: Fields) -> Place:
    if ("coil" in fields) == ("register" in fields):
        raise fields.error("coil", "set either coil or register, counted from 0")
    kind = "coil" if "coil" in fields else "register"
    return Place(kind, fields.whole(kind, 0, 65_535))
