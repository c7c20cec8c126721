"""Which devices a shard listens to: networks that they come from, certificates and tokens that they show.

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
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from embereye.process.addresses import peer_host, place_of
from embereye.v1.shard_pb2 import AccessRules, ClientCertificates

logger = logging.getLogger(__name__)
VARIABLE = "EMBEREYE_CREDENTIALS"  # the folder that Secrets are mounted in, one folder each
LOOK_SECONDS = 2.0  # between two looks at the files
MAX_BYTES = 2 * 1024 * 1024  # of one file; a Secret has at most 1 MiB
LEAST = 16  # characters of a token
STREAMS = 10_000  # that are open at once: each takes 24 kB
OF_ONE_ADDRESS = STREAMS // 2  # a gateway is one address for many devices


class NotAdmittedError(Exception):
    """A device is not listened to; the text is for whoever runs it."""


@dataclass(frozen=True)
class Grant:
    """What a connection may speak for."""

    device: str | None = ""  # the only device; '': every one; None: none at all

    def permits(self, device: str) -> bool:
        """Whether it may speak for `device`."""
        return self.device in {"", device}


EVERYTHING, NOTHING = Grant(), Grant(None)
Names = Mapping["ClientCertificates.Field.ValueType", tuple[str, ...]]  # that a certificate, which was proved, has


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
        self._places: Counter[str] = Counter()  # that open streams come from
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
        self.recheck_senders()
        return True

    def recheck_senders(self) -> None:
        """End the streams that are open: their senders dial again, and are asked anew who they are."""
        while self._admitted:
            self._admitted.pop().cancel()

    @property
    def pins(self) -> bool:
        """Whether a text device stays with the address that it was first heard from, as long as it is heard there."""
        return not self._rules.open

    def check_text(self, host: str, names: Names | None = None) -> Grant:
        """What a text device from `host` may speak for; NotAdmittedError where that is nothing.

        `names` are those of the certificate that it showed; None: it came without TLS, and can prove nothing.
        """
        if self._rules.open:
            return EVERYTHING
        certified = names is not None and self._rules.HasField("certificates")
        if not self._rules.networks and not certified:
            raise self._denied(
                "text devices without a certificate prove nothing, and spec.access.networks names none that they may "
                "come from"
            )
        if self._rules.networks:
            self._check_network(host)
        return self._certified(names) if certified and names is not None else EVERYTHING

    @contextlib.asynccontextmanager
    async def admitted(self, context: Any) -> AsyncIterator[Grant]:
        """What the stream of a servicer's `context` may speak for; where that is nothing the stream is ended.

        It is ended, too, where there are too many, and once the rules change: its sender dials again, and is asked anew
        whether it may speak.
        """
        # With the first response on its way they could not go with a status, which would never be sent.
        await context.send_initial_metadata(())
        grant = await self._admit(context)
        task, place = asyncio.current_task(), place_of(peer_host(context.peer()))
        assert task is not None
        if self._places.total() >= STREAMS or self._places[place] >= OF_ONE_ADDRESS:
            self.refused += 1
            sentence = f"{self._places[place]} of {self._places.total()} streams are from {place}: one does for all"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
        self._admitted.add(task)
        self._places[place] += 1
        try:
            yield grant
        except asyncio.CancelledError:
            if task in self._admitted:
                raise
            # A handler that is only cancelled leaves its caller without a status.
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the access rules have changed: dial again")
        finally:
            self._admitted.discard(task)
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]

    async def _admit(self, context: Any) -> Grant:
        if self._rules.open:
            return EVERYTHING
        try:
            names = _names_of_call(context) if self._rules.HasField("certificates") else {}
            return self.check_call(peer_host(context.peer()), context.invocation_metadata(), names)
        except NotAdmittedError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            raise

    def check_call(
        self, host: str, metadata: Iterable[tuple[str, str | bytes]] | None, names: Names | None = None
    ) -> Grant:
        """What a call from `host` may speak for; NotAdmittedError where that is nothing.

        `names` are those of the certificate that it was made with.
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
            raise self._denied(f'the certificate is of "{certified.device}", and the token of "{token.device}"')
        return certified if certified.device else token

    def _certified(self, names: Names) -> Grant:
        """What a certificate with `names` speaks for."""
        rule = self._rules.certificates
        found = names.get(rule.field, ())
        if any(name in rule.gateways for name in found):
            return EVERYTHING
        before, _, behind = rule.match.partition("*")
        devices = {
            name[len(before) : len(name) - len(behind)]
            for name in found
            if name.startswith(before) and name.endswith(behind) and len(name) > len(before) + len(behind)
        }
        if len(devices) != 1:
            field = ClientCertificates.Field.Name(rule.field).removeprefix("FIELD_").lower()
            said = ", ".join(f'"{name[:80]}"' for name in found[:3]) or "nothing"
            raise self._denied(
                f'devices of this fleet show a certificate with one {field} like "{rule.match}", and {said} is shown'
            )
        return Grant(devices.pop())

    def _by_token(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> Grant:
        self._reread_tokens()
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

    def _reread_tokens(self) -> None:
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
            if version != self._seen:
                self._grants = dict(_grants(*(_read(file) for file in files)))
        except (OSError, ValueError) as error:
            why = (
                "has no key token or devices, or is not mounted" if isinstance(error, FileNotFoundError) else str(error)
            )
            if not self._failing:
                logger.warning('Secret "%s" %s; tokens that were known before stay valid', self._rules.tokens, why)
            self._failing = f'Secret "{self._rules.tokens}" {why}'
            return
        self._seen, self._failing = version, ""


def names_of(certificate: Mapping[str, Any]) -> Names:
    """The names in a certificate as Python's ssl tells of it."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    others = certificate.get("subjectAltName", ())
    return {
        ClientCertificates.FIELD_COMMON_NAME: tuple(subject),
        ClientCertificates.FIELD_DNS: tuple(value for key, value in others if key == "DNS"),
        ClientCertificates.FIELD_URI: tuple(value for key, value in others if key == "URI"),
    }


def _names_of_call(context: Any) -> Names:
    found = context.auth_context()

    def texts(key: str) -> tuple[str, ...]:
        return tuple(bytes(value).decode("utf-8", "replace") for value in found.get(key, ()))

    return {
        ClientCertificates.FIELD_COMMON_NAME: texts("x509_common_name"),
        ClientCertificates.FIELD_DNS: texts("peer_dns"),
        ClientCertificates.FIELD_URI: texts("peer_uri"),
    }


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
