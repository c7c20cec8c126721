"""Answers of a provider, whole and in parts: a simulated provider controls them, unlike a real one."""

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from embereye.hub.oidc import attempt as attempts
from embereye.hub.oidc.errors import ProviderError
from embereye.hub.oidc.options import ProviderOptions, RoleRules
from embereye.hub.oidc.provider import MAX_ANSWER, Person, Provider
from embereye.hub.roles import Role

KEY = RSAKey.generate_key(2048, {"kid": "one"})
ATTEMPT = attempts.begin("http://localhost/login/oidc/callback", "/", time.monotonic())


@dataclass
class Accounts:
    """A simulated provider, where everybody is Ada, a warden."""

    issuer: str = ""
    part: int = 2**30  # bytes that are sent at once
    other_keys: list[Any] = field(default_factory=list)  # in addition to the signing key
    more: dict[str, Any] = field(default_factory=dict)  # additional metadata
    claims: dict[str, Any] = field(default_factory=lambda: {"name": "Ada", "groups": ["wardens"]})

    async def describe(self, request: web.Request) -> web.StreamResponse:
        """Answer with the metadata."""
        paths = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/keys"}
        metadata = {"issuer": self.issuer, **{name: self.issuer + path for name, path in paths.items()}}
        return await self._send(request, {**metadata, **self.more})

    async def list_keys(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, {"keys": [*self.other_keys, KEY.as_dict(private=False)]})

    async def exchange(self, request: web.Request) -> web.StreamResponse:
        now = time.time()
        about = {"iss": self.issuer, "aud": "embereye", "sub": "7", "nonce": ATTEMPT.nonce, "iat": now, "exp": now + 60}
        token = jwt.encode({"alg": "RS256", "kid": "one"}, {**about, **self.claims}, KEY, algorithms=["RS256"])
        return await self._send(request, {"id_token": token})

    async def _send(self, request: web.Request, content: Mapping[str, Any]) -> web.StreamResponse:
        body = web.json_response(content).body
        assert isinstance(body, bytes)
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(body), self.part):
            await response.write(body[start : start + self.part])
        return response

    @property
    def provider(self) -> Provider:
        """A hub's client of it."""
        return Provider(ProviderOptions(self.issuer, "embereye", RoleRules("groups", {"wardens": Role.OPERATOR})))


@pytest.fixture
async def accounts() -> AsyncIterator[Accounts]:
    accounts, app = Accounts(), web.Application()
    app.router.add_get("/.well-known/openid-configuration", accounts.describe)
    app.router.add_get("/keys", accounts.list_keys)
    app.router.add_post("/token", accounts.exchange)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    accounts.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield accounts
    await runner.cleanup()


@pytest.mark.parametrize("part", [7, 2**30], ids=["bit by bit", "at once"])
async def test_an_answer_can_arrive_in_any_number_of_parts(accounts: Accounts, part: int) -> None:
    accounts.part = part
    assert await accounts.provider.identify(ATTEMPT, {"code": "x"}) == Person("Ada", Role.OPERATOR)


async def test_a_person_with_many_groups_signs_in_and_an_endless_answer_is_refused(accounts: Accounts) -> None:
    accounts.claims["groups"] = [*(f"group {number:040d}" for number in range(1_500)), "wardens"]
    assert await accounts.provider.identify(ATTEMPT, {"code": "x"}) == Person("Ada", Role.OPERATOR)
    accounts.claims["text"] = "x" * MAX_ANSWER
    with pytest.raises(ProviderError, match="not a JSON object of at most 1 MB"):
        await accounts.provider.identify(ATTEMPT, {"code": "x"})


@pytest.mark.parametrize(
    "key",
    [{"kty": "EC", "crv": "BP-256", "x": "aa", "y": "aa"}, {"use": "sig"}, {"kty": "RSA", "n": 5}, {"kty": "AKP"}, "x"],
)
async def test_an_unreadable_key_does_not_prevent_signing_in_with_another_key(accounts: Accounts, key: object) -> None:
    accounts.other_keys.append(key)
    assert await accounts.provider.identify(ATTEMPT, {"code": "x"}) == Person("Ada", Role.OPERATOR)


async def test_impossible_provider_metadata_is_reported_with_the_provider(accounts: Accounts) -> None:
    accounts.more = {"code_challenge_methods_supported": 256}
    with pytest.raises(ProviderError, match="does not support PKCE with S256"):
        await accounts.provider.identify(ATTEMPT, {"code": "x"})
