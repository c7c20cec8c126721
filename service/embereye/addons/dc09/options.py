"""The file of `embereye hub --dc09`: stations to report to, and accounts of panels whose alarms are evidence.

A station is one account at up to two receivers. `listen` is a port for panels. Keys are in files, which are read again
for each connection; an account with a key accepts and sends only encrypted messages.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embereye.addons.dc09.codes import CODES, Code
from embereye.process.fields import DeclaredError, Fields, Network
from embereye_cli.declared import read_declared

OPTION = "--dc09"
MAX_STATIONS = 16
MAX_ACCOUNTS = 1_000
SIA, CID = "SIA-DCS", "ADM-CID"
ACCOUNT = re.compile(r"[0-9A-Fa-f]{3,16}")
PREFIX = re.compile(r"[0-9A-Fa-f]{1,6}")
KEY = re.compile(r"[0-9A-Fa-f]{32}([0-9A-Fa-f]{16}){0,2}")  # AES-128, 192 or 256
ZONE = re.compile(r"[^/\s*]+(/[^/\s*]+)?")
LETTERS, DIGITS = re.compile("[A-Z]{2}"), re.compile("[0-9A-F]{3}")
DEFAULT_SEND = ("alarm", "fault")
SENDABLE = ("alarm", "pre-alarm", "fault", "test")


@dataclass(frozen=True)
class Receiver:
    """One receiver of a station."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class StationOptions:
    """One account at a monitoring station."""

    name: str
    account: str
    receivers: Sequence[Receiver]  # in order of preference
    format: str = SIA
    prefix: str = "0"  # account prefix, L
    receiver_number: str = ""  # R; '': not sent
    key_file: Path | None = None  # AES key in hexadecimal digits; None: not encrypted
    timeout: float = 20.0  # seconds for an acknowledgement
    attempts: int = 3  # at a receiver, before the next one is tried
    poll: float = 60.0  # seconds between two supervision messages to each receiver; 0: none
    send: Sequence[str] = DEFAULT_SEND
    zones: Mapping[str, int] = field(default_factory=dict)  # number by ZONE or NAMESPACE/ZONE; others: 0
    codes: Mapping[str, Code] = field(default_factory=lambda: CODES)
    extended: bool = False  # add time of occurrence and text, as extended data

    def number(self, namespace: str, zone: str) -> int:
        """The station's number of a zone; 0 if none is declared."""
        return self.zones.get(f"{namespace}/{zone}", self.zones.get(zone, 0))


@dataclass(frozen=True)
class AccountOptions:
    """One panel that reports here."""

    account: str
    name: str  # of the panel, in names of its devices
    zones: Mapping[int, str]  # ZONE or NAMESPACE/ZONE by the panel's number; 0: all others
    key_file: Path | None = None


@dataclass(frozen=True)
class ListenOptions:
    """The port for panels."""

    port: int
    accounts: Mapping[str, AccountOptions]  # by account, in capitals
    host: str = "127.0.0.1"
    allow: tuple[Network, ...] = ()  # panels' addresses; none: all that reach the port


@dataclass(frozen=True)
class Dc09Options:
    """The content of the file."""

    stations: Sequence[StationOptions] = ()
    listen: ListenOptions | None = None


def read_dc09(path: Path) -> Dc09Options:
    """Read the file at `path`; UserError names what is wrong."""
    return read_declared(path, OPTION, parse_dc09)


def parse_dc09(fields: Fields) -> Dc09Options:
    """Read the file's content; DeclaredError."""
    stations = fields.unique("stations", _station, most=MAX_STATIONS)
    listen = fields.part("listen", _listen)
    if not stations and listen is None:
        raise DeclaredError("nothing is declared. Add stations, which get alarms, or listen, for panels.")
    return Dc09Options(tuple(stations.values()), listen)


def _station(fields: Fields) -> StationOptions:
    return StationOptions(
        name=fields.name(),
        account=_account(fields),
        receivers=fields.items("receivers", _receiver, most=2, least=1),
        format=fields.choice("format", (SIA, CID), SIA),
        prefix=fields.text("prefix", "0", pattern=PREFIX, form="1 to 6 hexadecimal digits"),
        receiver_number=fields.text("receiverNumber", "", pattern=PREFIX, form="1 to 6 hexadecimal digits"),
        key_file=fields.file("keyFile"),
        timeout=fields.seconds("timeoutSeconds", 20.0, 1.0, 60.0),
        attempts=fields.whole("attempts", 1, 10, 3),
        poll=fields.seconds("pollSeconds", 60.0, 0.0, 86_400.0),
        send=fields.choices("send", SENDABLE, ()) or DEFAULT_SEND,
        zones=_zone_numbers(fields),
        codes=_codes(fields),
        extended=fields.flag("extendedData"),
    )


def _account(fields: Fields) -> str:
    return fields.text("account", pattern=ACCOUNT, form="an account of 3 to 16 hexadecimal digits").upper()


def _receiver(fields: Fields) -> Receiver:
    return Receiver(fields.host(), fields.whole("port", 1, 65_535))


def _zone_numbers(fields: Fields) -> dict[str, int]:
    numbers = fields.mapping("zones")
    for zone, number in numbers.items():
        if not ZONE.fullmatch(zone):
            raise fields.error("zones", f'"{zone[:80]}" is not ZONE or NAMESPACE/ZONE')
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 999:
            raise fields.error(f"zones.{zone}", f"{str(number)[:40]} is not a number from 0 to 999")
    return numbers


def _codes(fields: Fields) -> Mapping[str, Code]:
    def subjects(part: Fields) -> dict[str, Code]:
        return {subject: part.part(subject, lambda each, old=old: _code(each, old)) or old  # type: ignore[misc]
                for subject, old in CODES.items()}  # fmt: skip

    return fields.part("codes", subjects) or CODES


def _code(fields: Fields, default: Code) -> Code:
    return Code(
        fields.text("sia", default.sia, pattern=LETTERS, form="two capital letters"),
        fields.text("siaRestored", default.sia_restored, pattern=LETTERS, form="two capital letters"),
        fields.text("cid", default.cid, pattern=DIGITS, form="three digits in quotes"),
    )


def _listen(fields: Fields) -> ListenOptions:
    return ListenOptions(
        port=fields.whole("port", 1, 65_535),
        accounts=fields.unique("accounts", _panel, most=MAX_ACCOUNTS, least=1, key="account"),
        host=fields.host("127.0.0.1"),
        allow=fields.networks("allow"),
    )


def _panel(fields: Fields) -> AccountOptions:
    zones: dict[int, str] = {}
    for number, zone in fields.mapping("zones").items():
        if not number.isdecimal() or int(number) > 9_999:
            raise fields.error("zones", f"{number[:40]} is not a panel's zone number; 0: all others")
        if not isinstance(zone, str) or not ZONE.fullmatch(zone):
            raise fields.error(f"zones.{number}", f'"{str(zone)[:80]}" is not ZONE or NAMESPACE/ZONE')
        zones[int(number)] = zone
    if not zones:
        raise fields.missing("zones", "Name zones by the panel's numbers; 0: all others.")
    return AccountOptions(_account(fields), fields.name(), zones, fields.file("keyFile"))


def read_key(path: Path | None) -> str:
    """Read an AES key in hexadecimal digits; '' without a file. OSError, or ValueError that never shows the key."""
    if path is None:
        return ""
    key = path.read_text(encoding="utf-8").strip()
    if not KEY.fullmatch(key):
        raise ValueError(f"keyFile {path} does not have 32, 48 or 64 hexadecimal digits")
    return key
