"""Checks of ID tokens, names and roles."""

import base64
import dataclasses
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from embereye.hub.oidc import attempt as attempts
from embereye.hub.oidc.claims import name_of, verify
from embereye.hub.oidc.errors import NotProvedError, UnknownKeyError
from embereye.hub.oidc.options import ProviderOptions, RoleRules
from embereye.hub.roles import Role

NOW = 1_800_000_000.0
ISSUER = "https://accounts.example"
KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
KEYS = KeySet.import_key_set({"keys": [KEY.as_dict(private=False)]})
GOOD = {"iss": ISSUER, "aud": "embereye", "sub": "7", "nonce": "n", "iat": NOW - 5, "exp": NOW + 300}


def check(claims: dict[str, Any], key: Any = KEY, **header: str) -> Any:
    token = jwt.encode({"alg": "RS256", "kid": "one", **header}, claims, key, algorithms=["RS256"])
    return verify(token, KEYS, issuer=ISSUER, client="embereye", nonce="n", now=NOW)


@pytest.mark.parametrize(
    "change",
    [{}, {"aud": ["embereye", "b"], "azp": "embereye"}, {"exp": NOW - 59}, {"iat": NOW + 59}, {"nbf": NOW + 59}],
)
def test_a_valid_token_for_this_client_is_accepted(change: dict[str, Any]) -> None:
    assert check({**GOOD, **change})["sub"] == "7"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iss": "https://evil.example"}, "not from https://accounts.example"),
        ({"iss": None}, "not from"),
        ({"aud": "another"}, "not for the client embereye"),
        ({"aud": None}, "not for the client"),
        ({"aud": ["embereye", "another"]}, "another client (azp)"),
        ({"azp": "another"}, "another client (azp)"),
        ({"nonce": "m"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"exp": NOW - 60}, "expired 60 s ago"),
        ({"exp": None}, "has no exp"),
        ({"exp": "tomorrow"}, "has no exp"),
        ({"exp": float("inf")}, "has no exp"),
        ({"iat": None}, "has no iat"),
        ({"iat": NOW + 3600}, "starts in 3600 s"),
        ({"nbf": NOW + 61}, "starts in 61 s"),
        ({"nbf": "x"}, "nbf is not a time"),
        ({"sub": ""}, "has no subject"),
        ({"sub": 7}, "has no subject"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused_with_a_reason(change: dict[str, Any], reason: str) -> None:
    claims = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(NotProvedError) as caught:
        check(claims)
    assert reason in str(caught.value)


def test_only_a_signature_by_the_providers_key_is_accepted() -> None:
    for key, header in ((OTHER, {}), (OTHER, {"kid": "two"})):
        with pytest.raises(UnknownKeyError):
            check(GOOD, key, **header)


def test_tokens_without_signature_or_signed_with_a_public_value_are_refused() -> None:
    def token_of(mac: Callable[[bytes], bytes], **header: str) -> str:
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, GOOD)]
        signature = base64.urlsafe_b64encode(mac(b".".join(parts))).rstrip(b"=")
        return b".".join([*parts, signature]).decode()

    public = KEY.as_pem(private=False)
    confused = token_of(lambda text: hmac.digest(public, text, "sha256"), alg="HS256", kid="one")
    unsigned = token_of(lambda _: b"", alg="none")
    for token in (confused, unsigned, "", "a.b.c", "x" * 10_000, "\ud800"):
        with pytest.raises(NotProvedError):
            verify(token, KEYS, issuer=ISSUER, client="embereye", nonce="n", now=NOW)


@pytest.mark.parametrize(
    ("claim", "claims", "role"),
    [
        ("groups", {"groups": ["staff", "wardens", "chiefs"]}, Role.ADMIN),
        ("groups", {"groups": "wardens"}, Role.OPERATOR),
        ("groups", {"groups": ["staff", 7, None]}, None),
        ("groups", {}, None),
        ("realm_access.roles", {"realm_access": {"roles": ["wardens"]}}, Role.OPERATOR),
        ("realm_access.roles", {"realm_access": "wardens"}, None),
        ("https://a.example/roles", {"https://a.example/roles": ["chiefs"]}, Role.ADMIN),
    ],
)
def test_the_highest_value_of_the_claim_gives_the_role(claim: str, claims: dict[str, Any], role: Role | None) -> None:
    assert RoleRules(claim, {"wardens": Role.OPERATOR, "chiefs": Role.ADMIN}).role(claims) == role


def test_people_get_the_first_name_that_can_be_displayed() -> None:
    wanted = ("preferred_username", "email")
    assert name_of({"preferred_username": " ", "email": "ada@example.com", "sub": "7"}, wanted) == "ada@example.com"
    assert name_of({"preferred_username": "ada\x1b[2J", "sub": "7"}, wanted) == "7"
    with pytest.raises(NotProvedError):
        name_of({"sub": "\n"}, wanted)


def test_an_attempt_belongs_to_its_browser_its_state_and_ten_minutes() -> None:
    now = time.monotonic()
    begun = attempts.begin("http://localhost/login/oidc/callback", "/", now)
    cookie = attempts.seal(begun, b"key")
    assert attempts.unseal(cookie, b"key", begun.state, now + 599) == begun
    forged = (
        attempts.seal(dataclasses.replace(begun, after="/x"), b"key").partition(".")[0] + "." + cookie.partition(".")[2]
    )
    for value, state, when in (
        (cookie, "x", now), (cookie, "", now), ("", begun.state, now), (forged, begun.state, now),
        ("é.é", begun.state, now), (cookie, begun.state, now + 601),
    ):  # fmt: skip
        with pytest.raises(NotProvedError):
            attempts.unseal(value, b"key", state, when)


@pytest.mark.parametrize(
    "issuer", ["http://accounts.example", "accounts.example", "https://", "https://a.example/?x=1"]
)
def test_an_issuer_must_be_an_https_url(issuer: str) -> None:
    with pytest.raises(ValueError, match=r"https URL|query"):
        ProviderOptions(issuer, "embereye", RoleRules("groups", {}))


def test_a_hub_without_a_provider_does_not_load_the_token_libraries() -> None:
    check = (
        "import sys, embereye_cli.processes.hub; sys.exit({'cryptography', 'joserfc'} & sys.modules.keys() != set())"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
