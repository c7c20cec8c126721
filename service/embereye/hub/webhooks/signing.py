"""Signatures of deliveries, as Standard Webhooks describes them (pure): receivers have libraries that check them."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from embereye.v1.alarms_pb2 import AlarmEvent

PREFIX = "whsec_"
LEAST_BYTES = 16


def delivery_id(event: AlarmEvent) -> str:
    """What a receiver knows `event` by: the same, however often it is sent."""
    return f"evt_{hashlib.sha256(event.SerializeToString(deterministic=True)).hexdigest()[:32]}"


def key_of(secret: str) -> bytes:
    """The key that `secret` is, either whsec_BASE64 or any text; ValueError where it is too short to be one."""
    text = secret.strip()
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True) if text.startswith(PREFIX) else text.encode()
    except binascii.Error as error:
        raise ValueError(f"the secret begins with {PREFIX}, and what follows is not base64") from error
    if len(key) < LEAST_BYTES:
        raise ValueError(f"the secret has {len(key)} bytes: at least {LEAST_BYTES} keep others from guessing it")
    return key


def headers(name: str, seconds: int, body: bytes, key: bytes | None) -> Mapping[str, str]:
    """The headers of the delivery `name`, sent `seconds` after the Unix epoch; signed where there is a key."""
    told = {"webhook-id": name, "webhook-timestamp": str(seconds)}
    if key is None:
        return told
    signed = hmac.new(key, b"%s.%d." % (name.encode(), seconds) + body, hashlib.sha256).digest()
    return {**told, "webhook-signature": f"v1,{base64.b64encode(signed).decode()}"}
