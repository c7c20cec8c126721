"""What an ID token has to say, and who and what its bearer is by it. No I/O: keys and time are arguments."""

import hmac
from collections.abc import Sequence

from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from embereye.hub.oidc.errors import NotProvedError, UnknownKeyError
from embereye.hub.oidc.options import Claims, texts

# Asymmetric ones alone: with a symmetric one, whoever knows the client's secret makes tokens; "none" proves nothing.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
LEEWAY_SECONDS = 60  # that the provider's clock may be ahead of ours, or behind
MAX_NAME = 100  # characters


def verify(token: str, keys: KeySet, *, issuer: str, client: str, nonce: str, now: float) -> Claims:
    """The claims of an ID token. `now` is in seconds since the Unix epoch.

    Raises NotProvedError with the reason where OpenID Connect Core 1.0, section 3.1.3.7, does not let it count;
    UnknownKeyError where other keys might.
    """
    try:
        decoded = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
    except (BadSignatureError, InvalidKeyIdError) as error:
        raise UnknownKeyError("the ID token is signed by a key that is not one of the provider's") from error
    except (JoseError, ValueError, TypeError) as error:
        raise NotProvedError(f"the ID token cannot be trusted: {str(error)[:200]}") from error
    claims = decoded.claims
    _check_parties(claims, issuer, client)
    _check_times(claims, now)
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise NotProvedError("the ID token's nonce is not the one that was asked for")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise NotProvedError("the ID token names nobody: sub is missing")
    return claims


def _check_parties(claims: Claims, issuer: str, client: str) -> None:
    if claims.get("iss") != issuer:
        raise NotProvedError(f'the ID token is from "{str(claims.get("iss"))[:200]}", not from {issuer}')
    audience = texts(claims.get("aud"))
    if client not in audience:
        raise NotProvedError(f"the ID token is not for the client {client}")
    party = claims.get("azp")
    if (party is not None or len(audience) > 1) and party != client:
        raise NotProvedError("the ID token was given to another client (azp)")


def _check_times(claims: Claims, now: float) -> None:
    for name, earliest in (("exp", now - LEEWAY_SECONDS), ("iat", None)):
        if not _is_time(claims.get(name)):
            raise NotProvedError(f"the ID token has no {name}")
        if earliest is not None and claims[name] <= earliest:
            raise NotProvedError(f"the ID token ended {now - claims[name]:.0f} s ago: see both clocks")
    for name in ("iat", "nbf"):
        if name not in claims:
            continue
        if not _is_time(claims[name]):
            raise NotProvedError(f"the ID token's {name} is no time")
        if claims[name] > now + LEEWAY_SECONDS:
            raise NotProvedError(f"the ID token begins in {claims[name] - now:.0f} s: see both clocks")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def name_of(claims: Claims, wanted: Sequence[str]) -> str:
    """How somebody is called: the first of the claims `wanted` that can be shown, else `sub`."""
    for claim in (*wanted, "sub"):
        value = claims.get(claim)
        if isinstance(value, str) and (name := value.strip()) and name.isprintable():
            return name[:MAX_NAME]
    raise NotProvedError("the provider tells no name that can be shown")
