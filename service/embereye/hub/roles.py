"""Roles, and principals: people and programs that have proved who they are."""

from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum


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
    """Return the role called `word`; ValueError lists all roles if there is none."""
    try:
        return Role[word.upper()]
    except KeyError:
        raise ValueError(f'"{word}" is not a role. Use viewer, operator or admin.') from None


@dataclass(frozen=True)
class Principal:
    """A person or program that has proved who they are."""

    name: str
    role: Role
    token: str  # name of the token behind it; '' for a person from an identity provider
    address: str = ""  # where the request came from
    session: bytes = b""  # digest of a browser's session; empty: the token itself was shown
    proved: int | None = None  # steady nanoseconds of the provider's proof behind a link; None: just now

    def acting_as(self, who: str) -> str:
        """The name for the record: the proved name, after the claimed name if there is one."""
        who = who.strip()
        return f"{who} ({self.name})" if who and who != self.name else self.name


# The principal of the call that is being served.
CALLER: ContextVar[Principal] = ContextVar("caller")
