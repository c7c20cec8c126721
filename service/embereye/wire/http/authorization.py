"""HTTP and RTSP authentication: Basic (RFC 7617) and Digest with MD5 or SHA-256 (RFC 2069, 7616).

This is the client's side. `strongest` chooses a challenge from the headers of a refusal, Digest before Basic, and
`authorize` answers it for one request. Nothing is stored here: the connection that was refused keeps the challenge, and
counts the uses of its nonce.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_CHALLENGE = 4096  # characters of one header that are parsed
_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_ALGORITHMS = {"MD5": "md5", "SHA-256": "sha256"}


@dataclass(frozen=True)
class Challenge:
    """An authentication challenge from a server."""

    scheme: str  # "basic" or "digest"
    realm: str = ""
    nonce: str = ""
    algorithm: str = "MD5"  # without "-sess"
    session: bool = False  # the algorithm's "-sess" form
    protected: bool = False  # qop=auth is offered; otherwise the form of RFC 2069 is used
    opaque: str | None = None
    stale: bool = False  # the nonce was too old; the password was not wrong
    named: bool = False  # the server names its algorithm; only then does the answer repeat it


def strongest(headers: Iterable[str]) -> Challenge | None:
    """The strongest supported challenge in WWW-Authenticate headers; None if none is supported."""
    challenges = [challenge for header in headers for challenge in _challenges(header[:MAX_CHALLENGE])]
    return max(challenges, key=lambda challenge: (challenge.scheme, challenge.algorithm), default=None)


def _challenges(header: str) -> Iterable[Challenge]:
    for part in re.split(r"(?:^|,)\s*(?=(?:basic|digest)\s+\w)", header, flags=re.IGNORECASE):
        scheme = part.strip().partition(" ")[0].lower()
        if scheme not in {"basic", "digest"}:
            continue
        values = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(part)}
        if scheme == "basic":
            yield Challenge("basic", values.get("realm", ""))
            continue
        algorithm = values.get("algorithm", "MD5").upper()
        session = algorithm.endswith("-SESS")
        algorithm = algorithm.removesuffix("-SESS")
        qops = [word.strip() for word in values.get("qop", "").lower().split(",")]
        if algorithm not in _ALGORITHMS or (qops != [""] and "auth" not in qops):
            continue
        yield Challenge(
            "digest", values.get("realm", ""), values.get("nonce", ""), algorithm, session, "auth" in qops,
            values.get("opaque"), values.get("stale", "").lower() == "true", "algorithm" in values,
        )  # fmt: skip


def authorize(
    challenge: Challenge, method: str, uri: str, user: str, password: str, *, count: int = 1, client_nonce: str
) -> str:
    """The Authorization header's value; `count` is the number of uses of the challenge's nonce, this one included."""
    if challenge.scheme == "basic":
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def hashed(text: str) -> str:
        return hashlib.new(_ALGORITHMS[challenge.algorithm], text.encode(), usedforsecurity=False).hexdigest()

    secret = hashed(f"{user}:{challenge.realm}:{password}")
    if challenge.session:
        secret = hashed(f"{secret}:{challenge.nonce}:{client_nonce}")
    request = hashed(f"{method}:{uri}")
    fields = [
        f'username="{_quoted(user)}"', f'realm="{challenge.realm}"', f'nonce="{challenge.nonce}"', f'uri="{uri}"'
    ]  # fmt: skip
    if challenge.protected:
        response = hashed(f"{secret}:{challenge.nonce}:{count:08x}:{client_nonce}:auth:{request}")
        fields += [f'response="{response}"', "qop=auth", f"nc={count:08x}", f'cnonce="{client_nonce}"']
    else:
        fields.append(f'response="{hashed(f"{secret}:{challenge.nonce}:{request}")}"')
    if challenge.named:
        fields.append(f"algorithm={challenge.algorithm}{'-sess' if challenge.session else ''}")
    if challenge.opaque is not None:
        fields.append(f'opaque="{challenge.opaque}"')
    return "Digest " + ", ".join(fields)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
