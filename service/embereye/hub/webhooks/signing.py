"""Signatures of deliveries by Standard Webhooks (pure); receivers can check them with its libraries."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from embereye.v1.alarms_pb2 import AlarmEvent

PREFIX = "whsec_"
MIN_BYTES = 16


def delivery_id(event: AlarmEvent) -> str:
    """A stable id of `event` for receivers: the same for every attempt."""
    return f"evt_{hashlib.sha256(event.SerializeToString(deterministic=True)).hexdigest()[:32]}"


def key_of(secret: str) -> bytes:
    """Read a key from `secret`, which is whsec_BASE64 or any text; ValueError if it is too short."""
    text = secret.strip()
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True) if text.startswith(PREFIX) else text.encode()
    except binascii.Error as error:
        raise ValueError(f"the secret starts with {PREFIX}, but the rest is not base64") from error
    if len(key) < MIN_BYTES:
        raise ValueError(f"the secret has {len(key)} bytes. Use at least {MIN_BYTES}, so that nobody can guess it.")
    return key


def headers(name: str, seconds: int, body: bytes, key: bytes | None) -> Mapping[str, str]:
    """Make the headers of the delivery `name`, sent `seconds` after the Unix epoch; signed if there is a key."""
    values = {"webhook-id": name, "webhook-timestamp": str(seconds)}
    if key is None:
        return values
    signed = hmac.new(key, b"%s.%d." % (name.encode(), seconds) + body, hashlib.sha256).digest()
    return {**values, "webhook-signature": f"v1,{base64.b64encode(signed).decode()}"}
