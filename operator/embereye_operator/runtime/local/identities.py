"""Certificates for the processes of this machine: an authority and a folder for each process, in the data folder.

The authority is created at the first start and stays in the data folder. `folder` returns the folder for a process,
with a certificate that is issued there if it is missing, outdated, or lacks a name. A task of `embereye up` renews the
due ones, by the wall clock or by age. Processes read changed files again, so no renewal restarts them.
"""

import asyncio
import logging
import time
from collections.abc import Sequence, Set
from datetime import timedelta
from pathlib import Path

from embereye.process.condition import Condition
from embereye.process.files import write_whole
from embereye.process.identity.authority import LIFE, Authority, Issued, is_due, served_names, utc_now
from embereye.process.identity.names import Identity
from embereye.process.lifecycle import UserError

logger = logging.getLogger(__name__)
PERIOD = 60.0  # seconds between checks for due certificates
AUTHORITY = "authority"


class LocalIdentities:
    """The certificates of `embereye up`, readable only for its user. Processes read changed files automatically."""

    def __init__(self, folder: Path, life: timedelta = LIFE) -> None:
        """Issue certificates that last for `life`. UserError if the folder cannot be written."""
        self._folder = folder.resolve()
        self._life = life
        self._names: dict[Identity, tuple[str, ...]] = {}
        self._known: dict[Identity, float] = {}  # monotonic seconds when it was issued; 0: by an earlier process
        try:
            self._authority = self._load()
        except OSError as error:
            raise UserError(f"{folder}: cannot be written ({error.strerror or error})") from error

    def add_names(self, identity: Identity, names: Sequence[str]) -> None:
        """Add `names`, hosts or addresses that other clients use, to its certificate."""
        if self._names.get(identity, ()) != tuple(names):
            self._names[identity] = tuple(names)
            self.folder(identity)

    def folder(self, identity: Identity) -> Path:
        """Return the folder for `--identity` of this process; it is renewed as long as this object exists."""
        folder = self._folder / identity.uri.removeprefix("spiffe://").replace("/", ".")
        self._known.setdefault(identity, 0.0)
        self._renew(identity, folder)
        return folder

    @property
    def authority(self) -> Path:
        """The PEM file with the certificates of the authority."""
        return self._folder / AUTHORITY / "ca.crt"

    def forget(self, identity: Identity) -> None:
        """Stop renewing it, because its process was deleted."""
        self._known.pop(identity, None)
        self._names.pop(identity, None)

    async def renew_periodically(self) -> None:
        """Renew due certificates until cancelled."""
        failing = Condition(logger)
        while True:
            await asyncio.sleep(min(PERIOD, self._life.total_seconds() / 10))
            try:
                self.renew()
                failing.clear()
            except OSError as error:
                failing.fail(str(error), "%s: cannot renew certificates: %s", self._folder, error)

    def renew(self) -> None:
        """Renew certificates that are due by the wall clock or by age; OSError if they cannot be written."""
        self._authority = self._load(self._authority)  # somebody may have replaced it
        for identity in list(self._known):
            self.folder(identity)

    def _renew(self, identity: Identity, folder: Path) -> None:
        now, issued_at = time.monotonic(), self._known[identity]
        aged = bool(issued_at) and now - issued_at > self._life.total_seconds() * 2 / 3
        names = self._names.get(identity, ())
        if not aged and self._is_current(folder, {*names, identity.server_name}):
            return
        self._write(folder, self._authority.issue(identity, utc_now(), self._life, names).files)
        self._known[identity] = now

    def _is_current(self, folder: Path, names: Set[str]) -> bool:
        """True if the certificate in the folder needs no renewal."""
        try:
            issued = Issued(*((folder / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt")))
            if served_names(issued.certificate) != names:
                return False
        except (OSError, ValueError):
            return False
        return not is_due(
            issued.certificate, issued.trusted, utc_now(), wanted=self._authority.trusted, life=self._life
        )

    def _load(self, before: Authority | None = None) -> Authority:
        folder = self._folder / AUTHORITY
        try:
            stored = Authority.load((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
        except FileNotFoundError:
            stored = Authority([])
        except ValueError as error:
            if before is not None:
                logger.warning("%s is not used: %s", folder, error)  # somebody may be writing it right now
                return before
            logger.warning("%s: unreadable: %s. Creating a new authority and new certificates", folder, error)
            stored = Authority([])
        renewed = stored.renewed(utc_now())
        if renewed is not stored:
            certificates, keys = renewed.to_pem()
            self._write(folder, {"ca.crt": certificates, "ca.key": keys})
        return renewed

    @staticmethod
    def _write(folder: Path, files: dict[str, bytes]) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        for name, content in files.items():
            write_whole(folder / name, content, durable=False, private=True)
