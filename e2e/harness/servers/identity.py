"""Certificates for tests, from an authority of the test, for any identity."""

from datetime import timedelta
from pathlib import Path

from embereye.process.identity.authority import LIFE, Authority, utc_now
from embereye.process.identity.names import Identity, Role


def shard(fleet: str, name: str) -> Identity:
    """The identity of a shard of the fleet "namespace/kind/name"."""
    return Identity(Role.SHARD, fleet.partition("/")[0], name, fleet)


HUB = Identity(Role.HUB, "embereye", "hub")
OPERATOR = Identity(Role.OPERATOR, "embereye", "operator")


class Issuer:
    """A certificate authority with folders of identities for processes."""

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        self.authority = authority or Authority.create(utc_now())
        self._folder = folder

    def folder(self, identity: Identity, life: timedelta = LIFE) -> Path:
        """Issue a new certificate for `identity` and return its folder, as `--identity` takes it."""
        folder = self._folder / identity.uri.removeprefix("spiffe://").replace("/", ".")
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.authority.issue(identity, utc_now(), life).files.items():
            (folder / name).write_bytes(content)
        return folder
