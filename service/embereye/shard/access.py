"""Access rules for devices: their networks, certificates and tokens.

A gRPC sender must satisfy every kind of rule that the assignment has. A text device, which has no token, must come from
a listed network, or have a certificate if none is listed. Either gets a `Grant`: one device, or all of them. If the
rules change, all open streams are ended: their senders dial again and are checked by the new rules.

Tokens are in a Secret that is mounted in the shard's pod and read again when it changes. Its key `token` has tokens for
every device of the fleet, one per line; its key `devices` has lines of a device's id and that device's token. To rotate
a token, write two lines for the same device.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from embereye.process.addresses import place_of
from embereye.process.admission import Admission
from embereye.process.condition import Condition
from embereye.process.grpc_front import peer_of
from embereye.v1.shard_pb2 import AccessRules, ClientCertificates

logger = logging.getLogger(__name__)
VARIABLE = "EMBEREYE_CREDENTIALS"  # the folder with one folder for each mounted Secret
CHECK_SECONDS = 2.0  # between two checks of the files
MAX_BYTES = 2 * 1024 * 1024  # of one file; a Secret has at most 1 MiB
MIN_LENGTH = 16  # characters of a token
STREAMS = 10_000  # most open streams, half of them for one client; each needs 24 kB


class NotAdmittedError(Exception):
    """A device is refused; the text is for the person who runs it."""


class NoTokenError(NotAdmittedError):
    """A device is refused because it has no valid token."""


@dataclass(frozen=True)
class Grant:
    """The devices that a connection may speak for."""

    device: str | None = ""  # the only device; '': all; None: none

    def is_for(self, device: str) -> bool:
        """True if it includes `device`."""
        return self.device in {"", device}


EVERYTHING, NOTHING = Grant(), Grant(None)
Names = Mapping["ClientCertificates.Field.ValueType", tuple[str, ...]]  # names in a verified certificate


class DeviceAccess:
    """The access rules in a fleet's assignment. Without any, every device is admitted, as if they were open."""

    def __init__(self, folder: str | None = None, steady: Callable[[], float] = time.monotonic) -> None:
        self.refused = 0  # refused connections and calls
        self._folder = os.environ.get(VARIABLE, "") if folder is None else folder
        self._steady = steady
        self._rules = AccessRules(open=True)
        self._networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
        self._grants: dict[bytes, Grant] = {}  # by the digest of a token
        self._streams: Admission[asyncio.Task[Any]] = Admission(STREAMS)  # tasks that serve streams
        self._checked = -CHECK_SECONDS
        self._version: object = None  # version of the files that were read
        self._failing = Condition(logger, first_only=True)

    def configure(self, rules: AccessRules | None) -> bool:
        """Use `rules`; None: admit every device. True if the rules changed."""
        wanted = rules or AccessRules(open=True)
        if wanted == self._rules:
            return False
        self._rules = wanted
        self._networks = tuple(_networks(wanted.networks))
        self._checked, self._version, self._grants = -CHECK_SECONDS, None, {}
        self.recheck_senders()
        return True

    def recheck_senders(self) -> None:
        """End all open streams: their senders dial again and are checked by the present rules."""
        for task in self._streams:
            self._streams.forget(task)
            task.cancel()

    @property
    def pins(self) -> bool:
        """True if a text device is bound to the address that it was first heard from, as long as it is heard there."""
        return not self._rules.open

    def check_text(self, host: str, names: Names | None = None) -> Grant:
        """The devices that a text connection from `host` may speak for; NotAdmittedError if there are none.

        `names` are the names in its certificate; None: it does not use TLS.
        """
        if self._rules.open:
            return EVERYTHING
        certified = names is not None and self._rules.HasField("certificates")
        if not self._rules.networks and not certified:
            raise self._denied(
                "a text device without a certificate cannot authenticate, and spec.access.networks is empty: add its "
                "network there"
            )
        if self._rules.networks:
            self._check_network(host)
        return self._certified(names) if certified and names is not None else EVERYTHING

    @contextlib.asynccontextmanager
    async def admitted(self, context: Any) -> AsyncIterator[Grant]:
        """Admit the stream of a servicer's `context` for the block, and yield the devices that it may speak for.

        The stream is ended if there are no such devices, if there are too many streams, and when the rules change.
        """
        # Sent before the first response, because metadata can no longer be sent afterwards.
        await context.send_initial_metadata(())
        grant = await self._admit(context)
        task, host = asyncio.current_task(), peer_of(context).host
        assert task is not None
        if not self._streams.admit(task, host):
            self.refused += 1
            place = place_of(host)
            sentence = (
                f"{self._streams.clients[place]} of {len(self._streams)} streams are from {place}: use one for all"
            )
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
        try:
            yield grant
        except asyncio.CancelledError:
            if task in self._streams:
                raise
            # Without an abort, the caller of a cancelled handler would get no status.
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the access rules have changed: dial again")
        finally:
            self._streams.forget(task)

    async def _admit(self, context: Any) -> Grant:
        if self._rules.open:
            return EVERYTHING
        try:
            client = peer_of(context)
            return self.check_call(client.host, context.invocation_metadata(), names_of(client.certificate))
        except NotAdmittedError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            raise

    def check_call(
        self, host: str, metadata: Iterable[tuple[str, str | bytes]] | None, names: Names | None = None
    ) -> Grant:
        """The devices that a call from `host` may speak for; NotAdmittedError if there are none.

        `names` are the names in the caller's certificate.
        """
        if self._rules.open:
            return EVERYTHING
        if self._rules.networks:
            self._check_network(host)
        certified = self._certified(names or {}) if self._rules.HasField("certificates") else EVERYTHING
        if not self._rules.tokens:
            return certified
        token = self._by_token(metadata)
        if certified.device and token.device and certified != token:
            raise self._denied(f'the certificate is for "{certified.device}", but the token for "{token.device}"')
        return certified if certified.device else token

    def _certified(self, names: Names) -> Grant:
        """The devices that a certificate with `names` may speak for."""
        rule = self._rules.certificates
        shown = names.get(rule.field, ())
        if any(name in rule.gateways for name in shown):
            return EVERYTHING
        before, _, behind = rule.match.partition("*")
        devices = {
            name[len(before) : len(name) - len(behind)]
            for name in shown
            if name.startswith(before) and name.endswith(behind) and len(name) > len(before) + len(behind)
        }
        if len(devices) != 1:
            field = ClientCertificates.Field.Name(rule.field).removeprefix("FIELD_").lower()
            listed = ", ".join(f'"{name[:80]}"' for name in shown[:3]) or "none"
            raise self._denied(
                f'devices of this fleet need a certificate with one {field} like "{rule.match}", but it has {listed}'
            )
        return Grant(devices.pop())

    def _by_token(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> Grant:
        self._reread_tokens()
        # Looked up by digest, so that the duration reveals nothing about a token.
        grant = self._grants.get(_digest(_bearer(metadata)))
        if grant is None:
            why = (
                self._failing.why or 'this one has none that is valid: send the metadata "authorization: Bearer TOKEN"'
            )
            self.refused += 1
            raise NoTokenError(f"devices of this fleet need a token: {why}")
        return grant

    def _check_network(self, host: str) -> None:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            raise self._denied(f'"{host[:100]}" is not in a network of spec.access.networks') from None
        mapped = getattr(address, "ipv4_mapped", None) or address
        # Loopback is always allowed: only this pod or machine can use it.
        if not mapped.is_loopback and not any(mapped in network for network in self._networks):
            raise self._denied(f"{mapped} is not in a network of spec.access.networks")

    def _denied(self, sentence: str) -> NotAdmittedError:
        self.refused += 1
        return NotAdmittedError(sentence)

    def _reread_tokens(self) -> None:
        """Read the tokens again if the Secret has changed; known ones stay valid if it cannot be read."""
        if self._steady() - self._checked < CHECK_SECONDS:
            return
        self._checked = self._steady()
        secret = Path(self._folder) / self._rules.tokens
        files = [secret / name for name in ("token", "devices")]
        try:
            if not self._folder or "/" in self._rules.tokens:
                raise FileNotFoundError
            stats = [file.stat() if file.exists() else None for file in files]
            version = [stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats]
            if not any(version):
                raise FileNotFoundError
            if version != self._version:
                self._grants = dict(_grants(*(_read(file) for file in files)))
        except (OSError, ValueError) as error:
            why = (
                "has no key token or devices, or is not mounted" if isinstance(error, FileNotFoundError) else str(error)
            )
            why = f'Secret "{self._rules.tokens}" {why}'
            self._failing.fail(why, "%s; its previous tokens stay valid", why)
            return
        self._version = version
        self._failing.clear()


def names_of(certificate: Mapping[str, Any]) -> Names:
    """The names in a certificate from Python's ssl."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternatives = certificate.get("subjectAltName", ())
    return {
        ClientCertificates.FIELD_COMMON_NAME: tuple(subject),
        ClientCertificates.FIELD_DNS: tuple(value for key, value in alternatives if key == "DNS"),
        ClientCertificates.FIELD_URI: tuple(value for key, value in alternatives if key == "URI"),
    }


def _networks(texts: Iterable[str]) -> Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for text in texts:
        try:
            yield ipaddress.ip_network(text, strict=False)
        except ValueError as error:
            logger.error("spec.access.networks: %s; this entry admits no device", error)  # noqa: TRY400


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
        if len(token := line.strip()) >= MIN_LENGTH:
            yield _digest(token), EVERYTHING
    for line in devices.splitlines():
        words = line.split()
        if len(words) == 2 and len(words[1]) >= MIN_LENGTH:
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
