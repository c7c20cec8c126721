"""Checks of an ID token, and the name in it (pure: keys and time are arguments).

`Provider` passes an ID token and the keys that it knows. `verify` checks the signature, then issuer and audience,
times, nonce and subject; the first failed check raises NotProvedError. An unknown key raises UnknownKeyError, after
which the provider fetches newer keys and tries once more.
"""

import hmac
from collections.abc import Sequence

from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from embereye.hub.oidc.errors import NotProvedError, UnknownKeyError
from embereye.hub.oidc.options import Claims, texts

# Asymmetric only: with a symmetric algorithm, a client's secret is enough to forge tokens; "none" proves nothing.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
LEEWAY_SECONDS = 60  # tolerated difference between the provider's clock and ours
MAX_NAME = 100  # characters


def verify(token: str, keys: KeySet, *, issuer: str, client: str, nonce: str, now: float) -> Claims:
    """Return the claims of a valid ID token. `now` is in seconds since the Unix epoch.

    NotProvedError says why a token is invalid by OpenID Connect Core 1.0, section 3.1.3.7; UnknownKeyError if newer
    keys might verify it.
    """
    try:
        decoded = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
    except (BadSignatureError, InvalidKeyIdError) as error:
        raise UnknownKeyError("the ID token is signed by an unknown key") from error
    except (JoseError, ValueError, TypeError) as error:
        raise NotProvedError(f"the ID token is invalid: {str(error)[:200]}") from error
    claims = decoded.claims
    _check_parties(claims, issuer, client)
    _check_times(claims, now)
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise NotProvedError("the ID token has the wrong nonce")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise NotProvedError("the ID token has no subject (sub)")
    return claims


def _check_parties(claims: Claims, issuer: str, client: str) -> None:
    if claims.get("iss") != issuer:
        raise NotProvedError(f'the ID token is from "{str(claims.get("iss"))[:200]}", not from {issuer}')
    audience = texts(claims.get("aud"))
    if client not in audience:
        raise NotProvedError(f"the ID token is not for the client {client}")
    party = claims.get("azp")
    if (party is not None or len(audience) > 1) and party != client:
        raise NotProvedError("the ID token was issued to another client (azp)")


def _check_times(claims: Claims, now: float) -> None:
    for name, earliest in (("exp", now - LEEWAY_SECONDS), ("iat", None)):
        if not _is_time(claims.get(name)):
            raise NotProvedError(f"the ID token has no {name}")
        if earliest is not None and claims[name] <= earliest:
            raise NotProvedError(f"the ID token expired {now - claims[name]:.0f} s ago. Check both clocks.")
    for name in ("iat", "nbf"):
        if name not in claims:
            continue
        if not _is_time(claims[name]):
            raise NotProvedError(f"the ID token's {name} is not a time")
        if claims[name] > now + LEEWAY_SECONDS:
            raise NotProvedError(f"the ID token starts in {claims[name] - now:.0f} s. Check both clocks.")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def name_of(claims: Claims, wanted: Sequence[str]) -> str:
    """Return the person's name: the first of the claims `wanted` that can be displayed, else `sub`."""
    for claim in (*wanted, "sub"):
        value = claims.get(claim)
        if isinstance(value, str) and (name := value.strip()) and name.isprintable():
            return name[:MAX_NAME]
    raise NotProvedError("the provider sent no name that can be displayed")
