"""Certificates for the processes of this machine: an authority and a folder for each process, kept with the data."""

import asyncio
import logging
import time
from collections.abc import Sequence, Set
from datetime import timedelta
from pathlib import Path

from embereye.process.files import write_whole
from embereye.process.identity.authority import LIFE, Authority, Issued, due, served_names, utc_now
from embereye.process.identity.names import Identity
from embereye.process.lifecycle import UserError

logger = logging.getLogger(__name__)
PERIOD = 60.0  # seconds between looks at what is to be renewed
AUTHORITY = "authority"


class LocalIdentities:
    """Nobody but the user who runs it can read what is kept here. Processes read their folders again by themselves."""

    def __init__(self, folder: Path, life: timedelta = LIFE) -> None:
        """Certificates last for `life`. UserError where the folder cannot be written."""
        self._folder = folder.resolve()
        self._life = life
        self._names: dict[Identity, tuple[str, ...]] = {}
        self._known: dict[Identity, float] = {}  # when it was issued here, monotonic seconds; 0: not by this process
        try:
            self._authority = self._load()
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {error.strerror or error}") from error

    def add_names(self, identity: Identity, names: Sequence[str]) -> None:
        """Issue it with `names`, of hosts or addresses, by which others than our own processes dial it."""
        if self._names.get(identity, ()) != tuple(names):
            self._names[identity] = tuple(names)
            self.folder(identity)

    def folder(self, identity: Identity) -> Path:
        """What `--identity` names for this process; it is renewed as long as this object is."""
        folder = self._folder / identity.uri.removeprefix("spiffe://").replace("/", ".")
        self._known.setdefault(identity, 0.0)
        self._renew(identity, folder)
        return folder

    @property
    def authority(self) -> Path:
        """The file with the certificates of the authority; PEM."""
        return self._folder / AUTHORITY / "ca.crt"

    def forget(self, identity: Identity) -> None:
        """Renew it no more: its process is gone."""
        self._known.pop(identity, None)
        self._names.pop(identity, None)

    async def keep(self) -> None:
        """Renew what is due, until cancelled."""
        while True:
            await asyncio.sleep(min(PERIOD, self._life.total_seconds() / 10))
            try:
                self.renew()
            except OSError as error:
                logger.warning("certificates cannot be renewed in %s: %s", self._folder, error)

    def renew(self) -> None:
        """Renew what is due now: by the wall clock, or by a clock that nobody sets. OSError where it cannot."""
        self._authority = self._load(self._authority)  # somebody may have put another one in its place
        for identity in list(self._known):
            self.folder(identity)

    def _renew(self, identity: Identity, folder: Path) -> None:
        now, issued_at = time.monotonic(), self._known[identity]
        aged = bool(issued_at) and now - issued_at > self._life.total_seconds() * 2 / 3
        names = self._names.get(identity, ())
        if not aged and self._stands(folder, {*names, identity.server_name}):
            return
        self._write(folder, self._authority.issue(identity, utc_now(), self._life, names).files)
        self._known[identity] = now

    def _stands(self, folder: Path, names: Set[str]) -> bool:
        """Whether what is in the folder need not be renewed yet."""
        try:
            found = Issued(*((folder / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt")))
        except OSError:
            return False
        try:
            if served_names(found.certificate) != names:
                return False
        except ValueError:
            return False
        return not due(found.certificate, found.trusted, utc_now(), wanted=self._authority.trusted, life=self._life)

    def _load(self, before: Authority | None = None) -> Authority:
        folder = self._folder / AUTHORITY
        try:
            kept = Authority.load((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
        except FileNotFoundError:
            kept = Authority([])
        except ValueError as error:
            if before is not None:
                logger.warning("%s is not used: %s", folder, error)  # it may be being written
                return before
            logger.warning("%s is made anew, and so is every certificate: %s", folder, error)
            kept = Authority([])
        renewed = kept.renewed(utc_now())
        if renewed is not kept:
            self._keep_authority(renewed)
        return renewed

    def _keep_authority(self, authority: Authority) -> None:
        certificates, keys = authority.to_pem()
        self._write(self._folder / AUTHORITY, {"ca.crt": certificates, "ca.key": keys})
        self._authority = authority

    @staticmethod
    def _write(folder: Path, files: dict[str, bytes]) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        for name, content in files.items():
            write_whole(folder / name, content, durable=False, private=True)
