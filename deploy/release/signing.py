"""Signs files of a release with the releaser's key, so that `cosign` and `openssl` can check them.

The key is an elliptic-curve key on P-256 in PEM, the kind that `cosign verify-blob --key` takes. Envelopes are DSSE's
(github.com/secure-systems-lab/dsse, version 1.0.2).
"""

import base64
import json
import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PASSWORD = "RELEASE_KEY_PASSWORD"  # the environment variable with the password of an encrypted key


class KeyFileError(Exception):
    """The reason why a key file is no use."""


class Key:
    """A private key on P-256, read from a PEM file. Raises KeyFileError if it is none."""

    def __init__(self, path: Path) -> None:
        password = os.environ.get(PASSWORD)
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password.encode() if password else None)
        except OSError as error:
            raise KeyFileError(f"{path}: {error.strerror}") from error
        except (TypeError, ValueError, UnsupportedAlgorithm) as error:
            raise KeyFileError(f"{path}: {error}. The password of an encrypted key is read from {PASSWORD}.") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise KeyFileError(
                f"{path} is not a key on P-256. Make one: openssl ecparam -name prime256v1 -genkey -noout -out {path}"
            )
        self._key = key

    @property
    def public(self) -> bytes:
        """The public key, as PEM."""
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, content: bytes) -> str:
        """Sign `content` by ECDSA over SHA-256; return the signature in base64."""
        return base64.b64encode(self._key.sign(content, ec.ECDSA(hashes.SHA256()))).decode()

    def envelop(self, statement: dict[str, Any]) -> dict[str, Any]:
        """Put an in-toto statement into a signed DSSE envelope."""
        kind, payload = "application/vnd.in-toto+json", json.dumps(statement).encode()
        signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        return {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": kind,
            "signatures": [{"keyid": "", "sig": self.sign(signed)}],
        }
