"""Web Push: messages to browsers that subscribed in the console, also while it is closed.

The hub makes its own VAPID key at the first need. A device's push service gets only encrypted messages, which the
service worker of the console shows. A subscription that the push service calls gone is removed.
"""

import base64
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pywebpush
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02

from embereye.addons.notify.channel import Channel, attempting, failure_of
from embereye.addons.notify.messages import Message
from embereye.addons.notify.options import Route
from embereye.addons.notify.readers import Reader
from embereye.addons.notify.rows import Rows
from embereye.hub.access.keeper import Access
from embereye.hub.refusals import InvalidError
from embereye.hub.roles import Principal, Role, Rosters, Scope
from embereye.hub.webhooks.sender import Refusal

MAX_DEVICES = 200
MAX_FIELD = 2_000  # characters of an endpoint or a key
MAX_TEXT = 1_500  # characters of a body: push services take 4,096 bytes, encrypted
TTL_SECONDS = 3_600  # that a push service keeps a message for a device that is off
GONE = (404, 410)
CONTACT = "mailto:embereye@example.com"  # for the push service, if the hub has no public address


class Device(NamedTuple):
    """A subscribed browser."""

    subscription: Mapping[str, Any]
    reader: Reader


class Devices:
    """The subscribed browsers, and the hub's key."""

    def __init__(self, rows: Callable[[], Rows], rosters: Rosters, access: Access) -> None:
        """`rosters` has the zones of the fleets that subscribers are limited to, `access` their tokens."""
        self._rows = rows
        self._rosters = rosters
        self._access = access

    def key(self) -> Vapid02:
        """The hub's VAPID key, made at the first call."""
        pem = self._rows().get("key", "vapid")
        if pem is None:
            key = Vapid02()
            key.generate_keys()
            self._rows().put("key", "vapid", key.private_pem().decode())
            self._rows().commit()
            return key
        return Vapid02.from_pem(pem.encode())

    def public_key(self) -> str:
        """The key as browsers want it: base64url of the uncompressed point."""
        point = self.key().public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return base64.urlsafe_b64encode(point).decode().rstrip("=")

    def all(self) -> list[Device]:
        """The subscriptions, with the limits of those who subscribed; without those whose token was revoked."""
        return [
            Device(
                document["subscription"],
                # Those of older versions have no limits.
                Reader(Scope(tuple(document.get("zones", ()))).by(self._rosters), document.get("acknowledges", True)),
            )
            for _, document in self._rows().all("device")
            if not self._is_revoked(document)
        ]

    def _is_revoked(self, document: Mapping[str, Any]) -> bool:
        """True if the token by which the device subscribed was revoked; a later one of that name is another."""
        name, made_ns = document.get("token", ("", 0))
        known_ns = self._access.token_made_ns(name)
        return known_ns is None or known_ns != made_ns

    def add(self, subscription: object, by: Principal) -> None:
        """Store the browser's subscription with the limits of `by`; InvalidError if it is not one."""
        document = _checked(subscription)
        for endpoint, stored in list(self._rows().all("device")):
            if self._is_revoked(stored):
                self._rows().put("device", endpoint, None)
        if len(self.all()) >= MAX_DEVICES and self._rows().get("device", document["endpoint"]) is None:
            raise InvalidError(f"{MAX_DEVICES} devices are subscribed, which is the maximum")
        limits = {"zones": list(by.scope.patterns), "acknowledges": by.role >= Role.OPERATOR}
        limits["token"] = [by.token, self._access.token_made_ns(by.token)]
        self._rows().put("device", document["endpoint"], {"subscription": document, "who": by.name, **limits})
        self._rows().commit()

    def remove(self, endpoint: str) -> None:
        """Forget a subscription."""
        self._rows().put("device", endpoint, None)
        self._rows().commit()


def _checked(subscription: object) -> dict[str, Any]:
    document = subscription if isinstance(subscription, dict) else {}
    keys = document.get("keys")
    keys = keys if isinstance(keys, dict) else {}
    fields: list[Any] = [document.get("endpoint"), keys.get("p256dh"), keys.get("auth")]
    if not all(isinstance(field, str) and 0 < len(field) <= MAX_FIELD for field in fields):
        raise InvalidError("endpoint, keys.p256dh and keys.auth must be texts")
    if urlsplit(fields[0]).scheme not in {"http", "https"}:
        raise InvalidError("endpoint is not an address")
    return {"endpoint": fields[0], "keys": {"p256dh": fields[1], "auth": fields[2]}}


class PushChannel(Channel):
    """Sends the messages of a route to all subscribed browsers."""

    def __init__(self, route: Route, clock: Callable[[], float], devices: Devices, contact: str) -> None:
        """`contact` is an https address for push services; '': none."""
        super().__init__(route, clock)
        self._devices = devices
        self._contact = contact if contact.startswith("https://") else CONTACT
        self._listed: list[Device] = []
        self._key: Vapid02 | None = None
        self._gone: list[str] = []

    def readers(self) -> Collection[Reader]:
        """The limits of the subscribed browsers that have any."""
        return {device.reader for device in self._devices.all() if device.reader.is_limited}

    async def send(self, message: Message) -> Refusal | None:
        """Make one attempt; None if a device's push service accepted the message."""
        self._listed, self._key, self._gone = self._devices.all(), self._devices.key(), []
        refusal = await super().send(message)
        for endpoint in self._gone:
            self._devices.remove(endpoint)
        return refusal

    def _attempt(self, message: Message) -> Refusal | None:
        if not self._listed:
            return Refusal("no device has subscribed. Open the console on it, and choose Notify this device.")
        refusals = [
            self._push(device.subscription, version)
            for device in self._listed
            if (version := message.version_for(device.reader))
        ]
        if not refusals:
            return Refusal("all devices that have subscribed are limited to other zones")
        return None if None in refusals else refusals[0]

    def _push(self, device: Mapping[str, Any], message: Message) -> Refusal | None:
        body = {
            "title": message.title, "body": message.body[:MAX_TEXT], "link": message.link, "kind": message.kind,
        }  # fmt: skip
        with attempting(self._route) as call:
            try:
                pywebpush.webpush(
                    device, json.dumps(body), self._key, {"sub": self._contact}, timeout=self._route.timeout / 2,
                    ttl=TTL_SECONDS, headers={"Urgency": "high" if message.kind == "failure" else "normal"},
                )  # fmt: skip
            except pywebpush.WebPushException:
                if call.status in GONE:
                    self._gone.append(device["endpoint"])
                    return Refusal("the device's subscription is gone. Subscribe again in the console.")
                return failure_of(call, device["endpoint"], self._clock())
            except Exception as error:
                call.warning = call.warning or type(error).__name__
                return failure_of(call, device["endpoint"], self._clock())
        return None
