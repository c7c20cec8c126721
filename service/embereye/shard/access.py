"""Which devices a shard listens to: networks that they may come from, and tokens that senders over gRPC show.

Tokens are in a Secret that is mounted in the shard's pod, and read again as it changes: its key `token` has those that
speak for every device of the fleet, one in a line, and `devices` lines of a device's id and a token that speaks for
that one. Two lines for the same are how a token is rotated.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from embereye.process.addresses import peer_host
from embereye.v1.shard_pb2 import AccessRules

logger = logging.getLogger(__name__)
VARIABLE = "EMBEREYE_CREDENTIALS"  # the folder that Secrets are mounted in, one folder each
LOOK_SECONDS = 2.0  # between two looks at the files
MAX_BYTES = 2 * 1024 * 1024  # of one file; a Secret has at most 1 MiB
LEAST = 16  # characters of a token


class NotAdmittedError(Exception):
    """A device is not listened to; the text is for whoever runs it."""


@dataclass(frozen=True)
class Grant:
    """What a connection may speak for."""

    device: str = ""  # the only device; '': every one

    def permits(self, device: str) -> bool:
        """Whether it may speak for `device`."""
        return not self.device or device == self.device


EVERYTHING = Grant()


class DeviceAccess:
    """The rules of one fleet, as its assignment has them; without any everybody is admitted, as where they say open."""

    def __init__(self, folder: str | None = None, steady: Callable[[], float] = time.monotonic) -> None:
        self.refused = 0  # connections and calls
        self._folder = os.environ.get(VARIABLE, "") if folder is None else folder
        self._steady = steady
        self._rules = AccessRules(open=True)
        self._networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
        self._grants: dict[bytes, Grant] = {}  # by digest
        self._admitted: set[asyncio.Task[Any]] = set()  # that serve streams by the rules of now
        self._looked = -LOOK_SECONDS
        self._seen: object = None  # which version of the files was read
        self._failing = ""

    def configure(self, rules: AccessRules | None) -> bool:
        """Go by `rules`; None: nothing is said, and everybody is admitted. Returns whether that is a change."""
        wanted = rules or AccessRules(open=True)
        if wanted == self._rules:
            return False
        self._rules = wanted
        self._networks = tuple(_networks(wanted.networks))
        self._looked, self._seen, self._grants = -LOOK_SECONDS, None, {}
        while self._admitted:
            self._admitted.pop().cancel()
        return True

    def check_text(self, host: str) -> None:
        """Raise NotAdmittedError where a text device, which can prove nothing, may not come from `host`."""
        if self._rules.open:
            return
        if not self._networks:
            raise self._denied(
                "text devices prove nothing, and spec.access.networks names none that they may come from"
            )
        self._check_network(host)

    @contextlib.asynccontextmanager
    async def admitted(self, context: Any) -> AsyncIterator[Grant]:
        """What the stream of a servicer's `context` may speak for; where that is nothing the stream is ended.

        It is ended, too, once the rules change: its sender dials again, and is asked anew whether it may speak.
        """
        grant = await self._admit(context)
        task = asyncio.current_task()
        assert task is not None
        self._admitted.add(task)
        try:
            yield grant
        except asyncio.CancelledError:
            if task in self._admitted:
                raise
            # A handler that is only cancelled leaves its caller without a status.
            await context.abort(grpc.StatusCode.UNAVAILABLE, "who may speak here has changed: dial again")
        finally:
            self._admitted.discard(task)

    async def _admit(self, context: Any) -> Grant:
        if self._rules.open:
            return EVERYTHING
        try:
            return self.check_call(peer_host(context.peer()), context.invocation_metadata())
        except NotAdmittedError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            raise

    def check_call(self, host: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> Grant:
        """What a call from `host` may speak for; NotAdmittedError where that is nothing."""
        if self._rules.open:
            return EVERYTHING
        if self._rules.networks:
            self._check_network(host)
        if not self._rules.tokens:
            return EVERYTHING
        self._look()
        # By a digest, which nobody can steer towards another: how long it takes tells nothing of any token.
        grant = self._grants.get(_digest(_bearer(metadata)))
        if grant is None:
            why = self._failing or 'none that is known is shown: send the metadata "authorization: Bearer TOKEN"'
            raise self._denied(f"devices of this fleet show a token, and {why}")
        return grant

    def _check_network(self, host: str) -> None:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            raise self._denied(f'"{host[:100]}" is no address of spec.access.networks') from None
        mapped = getattr(address, "ipv4_mapped", None) or address
        # Nobody else reaches a pod, or a machine that listens to itself alone, from there.
        if not mapped.is_loopback and not any(mapped in network for network in self._networks):
            raise self._denied(f"{mapped} is not in a network of spec.access.networks")

    def _denied(self, sentence: str) -> NotAdmittedError:
        self.refused += 1
        return NotAdmittedError(sentence)

    def _look(self) -> None:
        """Read the tokens again where the Secret has changed; what cannot be read leaves those that are known."""
        if self._steady() - self._looked < LOOK_SECONDS:
            return
        self._looked = self._steady()
        place = Path(self._folder) / self._rules.tokens
        files = [place / name for name in ("token", "devices")]
        try:
            if not self._folder or "/" in self._rules.tokens:
                raise FileNotFoundError
            stats = [file.stat() if file.exists() else None for file in files]
            version = [stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]
            if not any(version):
                raise FileNotFoundError
            if version == self._seen:
                return
            found = dict(_grants(*(_read(file) for file in files)))
        except (OSError, ValueError) as error:
            why = (
                "has no key token or devices, or is not mounted" if isinstance(error, FileNotFoundError) else str(error)
            )
            if not self._failing:
                logger.warning('Secret "%s" %s; tokens that were known before stay valid', self._rules.tokens, why)
            self._failing = f'Secret "{self._rules.tokens}" {why}'
            return
        self._seen, self._grants, self._failing = version, found, ""


def _networks(texts: Iterable[str]) -> Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for text in texts:
        try:
            yield ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            logger.error("spec.access.networks: %s; nobody is admitted by it", error)  # noqa: TRY400


def _read(file: Path) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES} bytes under {file.name}")
    return content.decode("utf-8", "replace")


def _grants(tokens: str, devices: str) -> Iterable[tuple[bytes, Grant]]:
    for line in tokens.splitlines():
        if len(token := line.strip()) >= LEAST:
            yield _digest(token), EVERYTHING
    for line in devices.splitlines():
        words = line.split()
        if len(words) == 2 and len(words[1]) >= LEAST:
            yield _digest(words[1]), Grant(words[0])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _bearer(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    for key, value in metadata or ():
        if key == "authorization":
            text = value if isinstance(value, str) else value.decode("latin-1")
            scheme, _, token = text.partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""
