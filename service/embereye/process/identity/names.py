"""The identity of a process in its certificate: role, namespace and name, as a URI. Pure.

The form is SPIFFE's (spiffe.io, "The SPIFFE Identity and Verifiable Identity Document"), which other tools read, too:

    spiffe://embereye/ns/NAMESPACE/operator/NAME
    spiffe://embereye/ns/NAMESPACE/hub/NAME
    spiffe://embereye/ns/NAMESPACE/KIND/FLEET/shard/NAME
"""

import re
from dataclasses import dataclass
from enum import StrEnum

TRUST_DOMAIN = "embereye"
SERVER_DOMAIN = "embereye.internal"  # never resolved: the dialling process names the expected certificate by it
# The characters that Kubernetes allows in names; without slashes, so that a URI is unambiguous.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class Role(StrEnum):
    """The role of a process."""

    OPERATOR = "operator"
    HUB = "hub"
    SHARD = "shard"


@dataclass(frozen=True)
class Identity:
    """The identity of one process. Its replicas and successors have the same identity."""

    role: Role
    namespace: str
    name: str
    fleet: str = ""  # only of a shard: "namespace/kind/name", as in its assignment

    def __post_init__(self) -> None:
        parts = [self.namespace, self.name]
        if self.role is Role.SHARD:
            parts += (fleet := self.fleet.split("/"))
            if len(fleet) != 3 or fleet[0] != self.namespace:
                raise ValueError(f'fleet "{self.fleet}" is not of the form {self.namespace}/KIND/NAME')
        elif self.fleet:
            raise ValueError(f'fleet "{self.fleet}": a {self.role} has no fleet')
        for part in parts:
            if not NAME.fullmatch(part):
                raise ValueError(f'"{part}" is not a name: use only letters, digits, "-", "_" and "."')

    @property
    def uri(self) -> str:
        """The URI in the certificate's subject alternative names."""
        fleet = "/".join(["", *self.fleet.split("/")[1:]]) if self.fleet else ""
        return f"spiffe://{TRUST_DOMAIN}/ns/{self.namespace}{fleet}/{self.role}/{self.name}"

    @property
    def server_name(self) -> str:
        """The name that its clients expect in its certificate, independent of the address they dial."""
        return shard_server_name(self.namespace, self.name) if self.role is Role.SHARD else SERVER_NAMES[self.role]

    def __str__(self) -> str:
        return f"{self.role} {self.namespace}/{self.name}"


# There is one hub and one operator for each certificate authority.
SERVER_NAMES = {Role.HUB: f"hub.{SERVER_DOMAIN}", Role.OPERATOR: f"operator.{SERVER_DOMAIN}"}


def shard_server_name(namespace: str, shard: str) -> str:
    """The `Identity.server_name` of a shard."""
    return f"{shard}.{namespace}.shard.{SERVER_DOMAIN}"


def parse_uri(uri: str) -> Identity:
    """Parse `Identity.uri`; ValueError if it is invalid."""
    parts = uri.removeprefix(f"spiffe://{TRUST_DOMAIN}/ns/").split("/")
    try:
        match parts:
            case [namespace, ("operator" | "hub") as role, name]:
                identity = Identity(Role(role), namespace, name)
            case [namespace, kind, fleet, "shard", name]:
                identity = Identity(Role.SHARD, namespace, name, f"{namespace}/{kind}/{fleet}")
            case _:
                raise ValueError("it does not have that form")
    except ValueError as error:
        raise ValueError(f'"{uri[:300]}" is not the identity of an EmberEye process: {error}') from error
    if identity.uri != uri:
        raise ValueError(
            f'"{uri[:300]}" is not the identity of an EmberEye process: it does not begin with spiffe://{TRUST_DOMAIN}/'
        )
    return identity
