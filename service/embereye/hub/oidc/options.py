"""How the hub is known to its identity provider, and what the provider's claims are worth here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from embereye.hub.access.roles import Role

LOOPBACK = {"localhost", "127.0.0.1", "::1"}

Claims = Mapping[str, Any]


@dataclass(frozen=True)
class RoleRules:
    """Which values of a claim give which role; the highest counts."""

    claim: str  # for example "groups"; a dot leads into an object: "realm_access.roles"
    values: Mapping[str, Role]

    def role(self, claims: Claims) -> Role | None:
        """The role that `claims` give; None: they have no value of ours."""
        return max((self.values[one] for one in texts(_lookup(claims, self.claim)) if one in self.values), default=None)

    def told(self, claims: Claims) -> bool:
        """Whether `claims` have the claim at all."""
        return _lookup(claims, self.claim) is not None


@dataclass(frozen=True)
class ProviderOptions:
    """How the hub is known to its provider."""

    issuer: str
    client: str  # the client's id
    roles: RoleRules
    secret_file: Path | None = None  # read anew each time; None: a public client
    scopes: str = "openid profile email"
    names: tuple[str, ...] = ("preferred_username", "email", "name")  # claims, the first that is there

    def __post_init__(self) -> None:
        """ValueError where the issuer is no URL that can be trusted."""
        check_url(self.issuer, loopback=True)
        if urlsplit(self.issuer).query or urlsplit(self.issuer).fragment:
            raise ValueError(f'"{self.issuer}" has a query or fragment: name the issuer as its tokens do')

    @property
    def host(self) -> str:
        """What people know it by."""
        return urlsplit(self.issuer).netloc


def check_url(address: str, *, loopback: bool) -> None:
    """Raise ValueError unless `address` is an https URL or, where `loopback`, one of http on this machine."""
    parts = urlsplit(address)
    secure = parts.scheme == "https" or (loopback and parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not secure or not parts.hostname:
        raise ValueError(f'"{address[:200]}" is not an https URL')


def _lookup(claims: Claims, path: str) -> object:
    if path in claims:  # such as "https://example.com/roles"
        return claims[path]
    found: object = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def texts(value: object) -> list[str]:
    """The strings of a claim that is one or several."""
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
