"""Roles, and principals: people and programs that have proved who they are."""

import functools
import re
from collections.abc import Iterable, Set
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

from embereye.hub.refusals import ForbiddenError, InvalidError

MAX_PATTERNS = 100  # of one scope
MAX_PATTERN = 320  # characters
# The characters of namespaces, zones and fleets, and *.
PATTERN = re.compile(r"[A-Za-z0-9.*-]+/([A-Za-z0-9._*-]+|(sensors|cameras|\*)/[A-Za-z0-9.*-]+)")

NOTHING = "(?!)"  # an expression that matches no text


class Role(IntEnum):
    """A set of permissions; each role includes those before it."""

    VIEWER = 1  # see everything that happens and happened
    OPERATOR = 2  # act on alarms: acknowledge, reset, test; steer actuators
    ADMIN = 3  # grant and revoke access, read the audit trail

    @property
    def word(self) -> str:
        """The role's name for people and programs."""
        return self.name.lower()


def role_named(word: str) -> Role:
    """Return the role called `word`; InvalidError lists all roles if there is none."""
    try:
        return Role[word.upper()]
    except KeyError:
        raise InvalidError(f'"{word}" is not a role. Use viewer, operator or admin.') from None


class Rosters(Protocol):
    """The declared devices of all fleets."""

    def zones_of(self, fleets: re.Pattern[str]) -> Set[tuple[str, str]]:
        """The zones (namespace, name) that the fleets called so have devices in now."""


class NoRosters:
    """Knows no fleet, so a pattern of fleets has no zones."""

    def zones_of(self, fleets: re.Pattern[str]) -> Set[tuple[str, str]]:
        """No zones."""
        del fleets
        return frozenset()


NO_ROSTERS = NoRosters()


@dataclass(frozen=True)
class Scope:
    """The zones and devices that a person or program sees and acts on.

    A pattern NAMESPACE/ZONE selects zones and all devices in them. A pattern NAMESPACE/KIND/NAME selects the devices of
    fleets, and the zones that these fleets declare devices in now, without the devices of other fleets.
    """

    patterns: tuple[str, ...] = ()  # with * for any characters; empty: all zones
    rosters: Rosters = field(default=NO_ROSTERS, compare=False, repr=False)

    @property
    def is_limited(self) -> bool:
        """True if there can be zones outside."""
        return bool(self.patterns)

    def has_zone(self, namespace: str, zone: str) -> bool:
        """True if the zone is in the scope."""
        if not self.patterns:
            return True
        zones, fleets = _expressions(self.patterns)
        return bool(zones.fullmatch(f"{namespace}/{zone}")) or (namespace, zone) in self.rosters.zones_of(fleets)

    def has_device(self, fleet: str, zone: str) -> bool:
        """True if the devices of `fleet` (NAMESPACE/KIND/NAME) in `zone` are in the scope."""
        if not self.patterns:
            return True
        zones, fleets = _expressions(self.patterns)
        return bool(zones.fullmatch(f"{fleet.partition('/')[0]}/{zone}") or fleets.fullmatch(fleet))

    def by(self, rosters: Rosters) -> "Scope":
        """The same scope, with the zones of its fleets from `rosters`."""
        return replace(self, rosters=rosters)

    @property
    def words(self) -> str:
        """The patterns for people; "all zones" if there are none."""
        return ", ".join(self.patterns) or "all zones"


EVERYWHERE = Scope()


def read_scope(patterns: Iterable[str]) -> Scope:
    """Read the patterns of a scope; InvalidError says which one is wrong."""
    read = tuple(dict.fromkeys(pattern.strip() for pattern in patterns))
    if len(read) > MAX_PATTERNS:
        raise InvalidError(
            f"{len(read)} zones are too many. Use at most {MAX_PATTERNS}, such as hall/* for a namespace."
        )
    for pattern in read:
        if not PATTERN.fullmatch(pattern) or len(pattern) > MAX_PATTERN:
            raise InvalidError(
                f'"{pattern[:80]}" is not of the form NAMESPACE/ZONE, such as default/kitchen or default/*, '
                "or of a fleet: NAMESPACE/KIND/NAME, such as default/cameras/yard"
            )
    return Scope(read)


@functools.lru_cache(maxsize=1_000)
def _expressions(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The expressions for zones and for fleets."""
    zones = [pattern for pattern in patterns if pattern.count("/") == 1]
    fleets = [pattern for pattern in patterns if pattern.count("/") > 1]
    return _expression(zones), _expression(fleets)


def _expression(patterns: Iterable[str]) -> re.Pattern[str]:
    def expression(pattern: str) -> str:
        *parts, last = (part.split("*") for part in pattern.split("/"))
        return "/".join([*("[^/]*".join(map(re.escape, part)) for part in parts), ".*".join(map(re.escape, last))])

    return re.compile("|".join(map(expression, patterns)) or NOTHING, re.DOTALL)


@dataclass(frozen=True)
class Principal:
    """A person or program that has proved who they are."""

    name: str
    role: Role
    token: str  # name of the token behind it; '' for a person from an identity provider
    address: str = ""  # where the request came from
    session: bytes = b""  # digest of a browser's session; empty: the token itself was shown
    proved: int | None = None  # steady nanoseconds of the provider's proof behind a link; None: just now
    scope: Scope = EVERYWHERE

    def acting_as(self, who: str) -> str:
        """The name for the record: the proved name, after the claimed name if there is one."""
        who = who.strip()
        return f"{who} ({self.name})" if who and who != self.name else self.name

    def check_role(self, needed: Role) -> None:
        """Raise ForbiddenError if its role does not include `needed`."""
        if self.role < needed:
            raise ForbiddenError(f"{self.name} is {self.role.word}: this takes the role {needed.word}")

    def check_unlimited(self) -> None:
        """Raise ForbiddenError if it is limited to zones."""
        if self.scope.is_limited:
            raise ForbiddenError(f"{self.name} is limited to {self.scope.words}: this is about all zones")

    def check_zone(self, namespace: str, zone: str) -> None:
        """Raise ForbiddenError if it is limited to other zones."""
        if not self.scope.has_zone(namespace, zone):
            place = f"{namespace[:80]}/{zone[:80]}"
            raise ForbiddenError(f"{self.name} is limited to {self.scope.words}: {place} is none of them")


HUB = Principal("hub", Role.ADMIN, "hub")  # the hub itself, in the audit trail
# The principal of the call that is being served.
CALLER: ContextVar[Principal] = ContextVar("caller")
