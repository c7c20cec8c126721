"""Signed files: canonical JSON, an Ed25519 signature, and chains in which each file has the hash of the one before.

A file is one line of JSON with sorted keys, without spaces, and a line feed at its end:

    {"key": "…", "signature": "…", "statement": {…}}

`key` is the public key and `signature` the signature of `statement` in the same form, both in lower-case hexadecimal.
A file with any other byte is not valid, because verification writes it again and compares. In a chain of days, the
statement's `previous` is the SHA-256 of the whole file of the day before; empty in the first one.

The private key is in a separate file, in PKCS #8 (PEM), as `openssl genpkey -algorithm ed25519` writes it. The module
loads `cryptography` only when it signs or verifies.
"""

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from embereye.process.files import restrict, write_new
from embereye.process.lifecycle import UserError

DER = bytes.fromhex("302e020100300506032b657004220420")  # before the 32 bytes of an Ed25519 key in PKCS #8
SEED_BYTES = 32
PEM = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"
HEX_KEY = re.compile(r"[0-9a-f]{64}")
FIELDS = {"key", "signature", "statement"}


def canonical(value: object) -> bytes:
    """The JSON of `value`: the same for equal values, in UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(data: bytes) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def prepare_key(path: Path, option: str) -> bytes:
    """Return the private key in the file at `path`, which is created if missing; UserError if it cannot be used."""
    try:
        if not path.exists():
            pem = PEM.format(base64.b64encode(DER + secrets.token_bytes(SEED_BYTES)).decode())
            write_new(path, pem.encode(), durable=True)
        restrict([path], 0o007)
        return _read(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{option} {path}: {getattr(error, 'strerror', '') or error}") from error


def _read(path: Path) -> bytes:
    lines = path.read_text(encoding="ascii").strip().splitlines()
    if len(lines) < len(PEM.splitlines()) or lines[0] != PEM.splitlines()[0]:
        raise ValueError("it has no private key. Write one with `openssl genpkey -algorithm ed25519`.")
    der = base64.b64decode("".join(lines[1:-1]), validate=True)
    if not der.startswith(DER) or len(der) != len(DER) + SEED_BYTES:
        raise ValueError("it has another kind of key. Write one with `openssl genpkey -algorithm ed25519`.")
    return der[len(DER) :]


def public_key(private: bytes) -> str:
    """The public key of a private one, in hexadecimal."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def seal(statement: Mapping[str, object], private: bytes) -> bytes:
    """Sign `statement`; returns the file."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(private)
    signed = {
        "key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(canonical(statement)).hex(),
        "statement": statement,
    }
    return canonical(signed) + b"\n"


class InvalidError(ValueError):
    """A file is not a valid signed statement; the text says why."""


def open_sealed(data: bytes, keys: Collection[str]) -> dict[str, Any]:
    """Return the statement in a file that one of `keys` has signed; InvalidError."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        sealed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidError("is not JSON") from error
    if not isinstance(sealed, dict) or set(sealed) != FIELDS or not isinstance(sealed["statement"], dict):
        raise InvalidError("is not a signed statement")
    key, signature, statement = str(sealed["key"]), str(sealed["signature"]), sealed["statement"]
    try:
        if canonical(sealed) + b"\n" != data:
            raise InvalidError("was changed: it is not written as the hub writes it")
        if key not in keys:
            raise InvalidError(f"is signed by another key, {key[:80]}")
        if not re.fullmatch(r"[0-9a-f]{128}", signature):
            raise InvalidError("was changed: it has no signature")
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), canonical(statement))
    except InvalidSignature as error:
        raise InvalidError("was changed: the signature does not match") from error
    except UnicodeEncodeError as error:
        raise InvalidError("was changed: it has half of a character") from error
    return statement


def _day_of(statement: Mapping[str, Any]) -> str:
    try:
        return date.fromisoformat(statement["day"]).isoformat()
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidError("names no day") from error


@dataclass
class Verdict:
    """The result of verifying a chain of days."""

    days: list[str] = field(default_factory=list)  # of the valid files, ascending
    problems: list[str] = field(default_factory=list)  # a sentence for each; none: all is valid
    begins: bool = False  # the earliest file is the first of the chain

    @property
    def is_valid(self) -> bool:
        """True if nothing is wrong, and there is at least one day."""
        return bool(self.days) and not self.problems


def verify_chain(files: Mapping[str, bytes], keys: Collection[str]) -> Verdict:
    """Verify the signature of each of `files`, by name, and that their days follow each other without a change."""
    verdict = Verdict()
    chain: dict[str, tuple[str, dict[str, Any], bytes]] = {}
    for name, data in sorted(files.items()):
        try:
            statement = open_sealed(data, keys)
            day = _day_of(statement)
        except InvalidError as error:
            verdict.problems.append(f"{name}: {error}")
            continue
        if day in chain:
            verdict.problems.append(f"{name}: is a second statement of {day}, beside {chain[day][0]}")
            continue
        chain[day] = name, statement, data
    verdict.days = sorted(chain)
    for before, day in zip(verdict.days, verdict.days[1:], strict=False):
        name, statement, _ = chain[day]
        for number in range(1, (date.fromisoformat(day) - date.fromisoformat(before)).days):
            verdict.problems.append(f"{date.fromisoformat(before) + timedelta(days=number)}: is missing")
        if date.fromisoformat(before) + timedelta(days=1) == date.fromisoformat(day):
            if statement.get("previous") != digest(chain[before][2]):
                verdict.problems.append(f"{name}: does not follow {chain[before][0]}: it has the hash of another file")
            elif statement.get("site") != chain[before][1].get("site"):
                verdict.problems.append(f"{name}: belongs to another site than {chain[before][0]}")
    verdict.begins = bool(verdict.days) and chain[verdict.days[0]][1].get("previous") == ""
    return verdict
