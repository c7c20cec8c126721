"""Roles, and principals: people and programs that have proved who they are."""

import functools
import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum

from embereye.hub.refusals import ForbiddenError, InvalidError

MAX_PATTERNS = 100  # of one scope
MAX_PATTERN = 320  # characters
PATTERN = re.compile(r"[A-Za-z0-9.*-]+/[A-Za-z0-9._*-]+")  # the characters of namespaces and zones, and *


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


@dataclass(frozen=True)
class Scope:
    """The zones that a person or program sees and acts on."""

    patterns: tuple[str, ...] = ()  # NAMESPACE/ZONE, with * for any characters; empty: all zones

    @property
    def is_limited(self) -> bool:
        """True if there can be zones outside."""
        return bool(self.patterns)

    def has_zone(self, namespace: str, zone: str) -> bool:
        """True if the zone is in the scope."""
        return not self.patterns or bool(_expression(self.patterns).fullmatch(f"{namespace}/{zone}"))

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
                f'"{pattern[:80]}" is not of the form NAMESPACE/ZONE, such as default/kitchen or default/*'
            )
    return Scope(read)


@functools.lru_cache(maxsize=1_000)
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    def part(text: str, wildcard: str) -> str:
        return wildcard.join(map(re.escape, text.split("*")))

    halves = (pattern.partition("/") for pattern in patterns)
    return re.compile(
        "|".join(f"{part(namespace, '[^/]*')}/{part(zone, '.*')}" for namespace, _, zone in halves), re.DOTALL
    )


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


# The principal of the call that is being served.
CALLER: ContextVar[Principal] = ContextVar("caller")
