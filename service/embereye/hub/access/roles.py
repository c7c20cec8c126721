"""Roles, and who somebody has proved to be."""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """What somebody may do; each may do what those before it may."""

    VIEWER = 1  # see everything that happens and happened
    OPERATOR = 2  # act on alarms: acknowledge, reset, test; steer actuators
    ADMIN = 3  # give and take access, read the audit trail

    @property
    def word(self) -> str:
        """Its name for people and programs."""
        return self.name.lower()


def role_named(word: str) -> Role:
    """The role that is called `word`; ValueError lists them where it is none."""
    try:
        return Role[word.upper()]
    except KeyError:
        raise ValueError(f'"{word}" is no role: viewer, operator or admin') from None


@dataclass(frozen=True)
class Principal:
    """Somebody who has proved who they are."""

    name: str
    role: Role
    token: str  # name of the token that it goes back to; '' of one who came from an identity provider
    address: str = ""  # that the request came from
    session: bytes = b""  # digest of a browser's session; empty: a token itself was shown
    proved: int | None = None  # steady nanoseconds, of a link by one who came from an identity provider; None: just now

    def acting_as(self, who: str) -> str:
        """What is recorded of an action: the name that was proved, behind the one that was merely given, if any."""
        who = who.strip()
        return f"{who} ({self.name})" if who and who != self.name else self.name


# Whose call is being served.
CALLER: ContextVar[Principal] = ContextVar("caller")
