"""The file of `embereye hub --dc09`: stations to report to, and accounts of panels whose alarms are evidence.

A station is one account at up to two receivers. `listen` is a port for panels. Keys are in files, which are read again
for each connection; an account with a key accepts and sends only encrypted messages.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embereye.addons.dc09.codes import CODES, Code
from embereye_cli.declared import DeclaredError, Fields, Network, read_declared

OPTION = "--dc09"
MAX_STATIONS = 16
MAX_ACCOUNTS = 1_000
MAX_ZONES = 10_000
SIA, CID = "SIA-DCS", "ADM-CID"
ACCOUNT = re.compile(r"[0-9A-Fa-f]{3,16}")
PREFIX = re.compile(r"[0-9A-Fa-f]{1,6}")
KEY = re.compile(r"[0-9A-Fa-f]{32}([0-9A-Fa-f]{16}){0,2}")  # AES-128, 192 or 256
ZONE = re.compile(r"[^/\s*]+(/[^/\s*]+)?")
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
    stations: dict[str, StationOptions] = {}
    for declared in fields.items("stations", most=MAX_STATIONS):
        station = _station(declared)
        if station.name in stations:
            raise declared.wrong("name", "is declared twice")
        stations[station.name] = station
    listen = _listen(fields.part("listen")) if "listen" in fields else None
    fields.part("listen")
    fields.close()
    if not stations and listen is None:
        raise DeclaredError("nothing is declared. Add stations, which get alarms, or listen, for panels.")
    return Dc09Options(tuple(stations.values()), listen)


def _station(fields: Fields) -> StationOptions:
    station = StationOptions(
        name=fields.name(),
        account=_account(fields),
        receivers=[_receiver(declared) for declared in fields.items("receivers", most=2, least=1)],
        format=fields.choice("format", (SIA, CID), SIA),
        prefix=fields.text("prefix", "0", pattern=PREFIX, form="1 to 6 hexadecimal digits"),
        receiver_number=fields.text("receiverNumber", "", pattern=PREFIX, form="1 to 6 hexadecimal digits"),
        key_file=fields.file("keyFile"),
        timeout=fields.seconds("timeoutSeconds", 20.0, 1.0, 60.0),
        attempts=fields.whole("attempts", 1, 10, 3),
        poll=fields.seconds("pollSeconds", 60.0, 0.0, 86_400.0),
        send=_send(fields),
        zones=_zone_numbers(fields),
        codes=_codes(fields),
        extended=fields.flag("extendedData"),
    )
    fields.close()
    return station


def _account(fields: Fields) -> str:
    return fields.text("account", pattern=ACCOUNT, form="an account of 3 to 16 hexadecimal digits").upper()


def _receiver(fields: Fields) -> Receiver:
    receiver = Receiver(fields.host(), fields.whole("port", 1, 65_535))
    fields.close()
    return receiver


def _send(fields: Fields) -> tuple[str, ...]:
    send = tuple(fields.texts("send")) or DEFAULT_SEND
    for subject in send:
        if subject not in SENDABLE:
            raise DeclaredError(f'{fields.place("send")}: "{subject[:40]}" is not one of {", ".join(SENDABLE)}')
    return send


def _zone_numbers(fields: Fields) -> dict[str, int]:
    numbers = fields.mapping("zones")
    for zone, number in numbers.items():
        if not ZONE.fullmatch(zone):
            raise DeclaredError(f'{fields.place("zones")}: "{zone[:80]}" is not ZONE or NAMESPACE/ZONE')
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 999:
            raise DeclaredError(f"{fields.place('zones')}.{zone}: {str(number)[:40]} is not a number from 0 to 999")
    return numbers


def _codes(fields: Fields) -> dict[str, Code]:
    codes = dict(CODES)
    for subject, declared in fields.mapping("codes").items():
        where = f"{fields.place('codes')}.{subject}"
        if subject not in codes:
            raise DeclaredError(f"{where}: is not one of {', '.join(codes)}")
        part = Fields(declared, where)
        letters, digits = re.compile("[A-Z]{2}"), re.compile("[0-9A-F]{3}")
        old = codes[subject]
        codes[subject] = Code(
            part.text("sia", old.sia, pattern=letters, form="two capital letters"),
            part.text("siaRestored", old.sia_restored, pattern=letters, form="two capital letters"),
            part.text("cid", old.cid, pattern=digits, form="three digits in quotes"),
        )
        part.close()
    return codes


def _listen(fields: Fields) -> ListenOptions:
    allow = fields.networks("allow")
    accounts: dict[str, AccountOptions] = {}
    for declared in fields.items("accounts", most=MAX_ACCOUNTS, least=1):
        account = _panel(declared)
        if account.account in accounts:
            raise declared.wrong("account", "is declared twice")
        accounts[account.account] = account
    listen = ListenOptions(
        port=fields.whole("port", 1, 65_535),
        accounts=accounts,
        host=fields.host("127.0.0.1"),
        allow=allow,
    )
    fields.close()
    return listen


def _panel(fields: Fields) -> AccountOptions:
    zones: dict[int, str] = {}
    for number, zone in fields.mapping("zones").items():
        if not number.isdecimal() or int(number) > 9_999:
            raise DeclaredError(f"{fields.place('zones')}: {number[:40]} is not a panel's zone number; 0: all others")
        if not isinstance(zone, str) or not ZONE.fullmatch(zone):
            raise DeclaredError(f'{fields.place("zones")}.{number}: "{str(zone)[:80]}" is not ZONE or NAMESPACE/ZONE')
        zones[int(number)] = zone
    if not zones:
        raise DeclaredError(f"{fields.place('zones')} is missing. Name zones by the panel's numbers; 0: all others.")
    account = AccountOptions(_account(fields), fields.name(), zones, fields.file("keyFile"))
    fields.close()
    return account


def read_key(path: Path | None) -> str:
    """Read an AES key in hexadecimal digits; '' without a file. OSError, or ValueError that never shows the key."""
    if path is None:
        return ""
    key = path.read_text(encoding="utf-8").strip()
    if not KEY.fullmatch(key):
        raise ValueError(f"keyFile {path} does not have 32, 48 or 64 hexadecimal digits")
    return key
