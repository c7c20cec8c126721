"""The hub's registration at its identity provider, and the roles for the provider's claims.

`embereye hub` makes them from its options at its start; the provider's URL has to be secure. A person's role is the
highest that the values of one claim give; without a listed value, the person is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from embereye.hub.roles import EVERYWHERE, Role, Scope

LOOPBACK = {"localhost", "127.0.0.1", "::1"}

Claims = Mapping[str, Any]


@dataclass(frozen=True)
class RoleRules:
    """The role for each value of a claim; the highest role counts."""

    claim: str  # for example "groups"; a dot leads into an object: "realm_access.roles"
    values: Mapping[str, Role]
    zones: Mapping[str, Scope] = field(default_factory=dict)  # the zones of people with a value; missing: all

    def scope(self, claims: Claims) -> Scope:
        """Return the zones for `claims`: those of the values that give the role, all if one of these is unlimited."""
        role, values = self.role(claims), texts(_lookup(claims, self.claim))
        scopes = [self.zones.get(value, EVERYWHERE) for value in values if self.values.get(value) == role]
        if not all(scope.is_limited for scope in scopes):
            return EVERYWHERE
        return Scope(tuple(dict.fromkeys(pattern for scope in scopes for pattern in scope.patterns)))

    def role(self, claims: Claims) -> Role | None:
        """Return the role for `claims`; None if they have no listed value."""
        values = texts(_lookup(claims, self.claim))
        return max((self.values[value] for value in values if value in self.values), default=None)

    def has_claim(self, claims: Claims) -> bool:
        """True if `claims` contain the claim."""
        return _lookup(claims, self.claim) is not None


@dataclass(frozen=True)
class ProviderOptions:
    """The hub's registration at its provider."""

    issuer: str
    client: str  # the client's id
    roles: RoleRules
    secret_file: Path | None = None  # read again for each use; None: a public client
    scopes: str = "openid profile email"
    names: tuple[str, ...] = ("preferred_username", "email", "name")  # claims; the first available one is the name

    def __post_init__(self) -> None:
        """Check the issuer: ValueError if its URL is not secure."""
        check_url(self.issuer, loopback=True)
        if urlsplit(self.issuer).query or urlsplit(self.issuer).fragment:
            raise ValueError(f'"{self.issuer}" has a query or fragment. Write the issuer as in its tokens.')

    @property
    def host(self) -> str:
        """The provider's name for people."""
        return urlsplit(self.issuer).netloc


def check_url(address: str, *, loopback: bool) -> None:
    """Raise ValueError unless `address` is an https URL or, with `loopback`, an http URL on this machine."""
    parts = urlsplit(address)
    secure = parts.scheme == "https" or (loopback and parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not secure or not parts.hostname:
        raise ValueError(f'"{address[:200]}" is not an https URL')


def _lookup(claims: Claims, path: str) -> object:
    if path in claims:  # such as "https://example.com/roles"
        return claims[path]
    value: object = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def texts(value: object) -> list[str]:
    """The strings of a claim that is a string or a list."""
    if isinstance(value, str):
        return [value]
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
