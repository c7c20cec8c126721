"""What a provider may answer, and in how many parts: one of the test's own, where a real one answers at its ease."""

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from embereye.hub.access.roles import Role
from embereye.hub.oidc import attempt as attempts
from embereye.hub.oidc.errors import ProviderError
from embereye.hub.oidc.options import ProviderOptions, RoleRules
from embereye.hub.oidc.provider import MAX_ANSWER, Person, Provider

KEY = RSAKey.generate_key(2048, {"kid": "one"})
ATTEMPT = attempts.begin("http://localhost/login/oidc/callback", "/", time.monotonic())


@dataclass
class Accounts:
    """Somebody's provider, where everybody is Ada, a warden."""

    issuer: str = ""
    part: int = 2**30  # bytes that are sent at once
    others: list[Any] = field(default_factory=list)  # keys besides the one that signs
    more: dict[str, Any] = field(default_factory=dict)  # that it tells of itself
    claims: dict[str, Any] = field(default_factory=lambda: {"name": "Ada", "groups": ["wardens"]})

    async def tell(self, request: web.Request) -> web.StreamResponse:
        """Of itself."""
        paths = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/keys"}
        told = {"issuer": self.issuer, **{name: self.issuer + path for name, path in paths.items()}}
        return await self._send(request, {**told, **self.more})

    async def list_keys(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, {"keys": [*self.others, KEY.as_dict(private=False)]})

    async def exchange(self, request: web.Request) -> web.StreamResponse:
        now = time.time()
        about = {"iss": self.issuer, "aud": "embereye", "sub": "7", "nonce": ATTEMPT.nonce, "iat": now, "exp": now + 60}
        token = jwt.encode({"alg": "RS256", "kid": "one"}, {**about, **self.claims}, KEY, algorithms=["RS256"])
        return await self._send(request, {"id_token": token})

    async def _send(self, request: web.Request, told: Mapping[str, Any]) -> web.StreamResponse:
        body = web.json_response(told).body
        assert isinstance(body, bytes)
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(body), self.part):
            await response.write(body[start : start + self.part])
        return response

    @property
    def provider(self) -> Provider:
        """It, as a hub knows it."""
        return Provider(ProviderOptions(self.issuer, "embereye", RoleRules("groups", {"wardens": Role.OPERATOR})))


@pytest.fixture
async def accounts() -> AsyncIterator[Accounts]:
    found, app = Accounts(), web.Application()
    app.router.add_get("/.well-known/openid-configuration", found.tell)
    app.router.add_get("/keys", found.list_keys)
    app.router.add_post("/token", found.exchange)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@pytest.mark.parametrize("part", [7, 2**30], ids=["bit by bit", "at once"])
async def test_an_answer_counts_in_however_many_parts_it_comes(accounts: Accounts, part: int) -> None:
    accounts.part = part
    assert await accounts.provider.identify(ATTEMPT, {"code": "x"}) == Person("Ada", Role.OPERATOR)


async def test_who_is_in_very_many_groups_signs_in_and_an_answer_without_an_end_is_refused(accounts: Accounts) -> None:
    accounts.claims["groups"] = [*(f"group {number:040d}" for number in range(1_500)), "wardens"]
    assert await accounts.provider.identify(ATTEMPT, {"code": "x"}) == Person("Ada", Role.OPERATOR)
    accounts.claims["text"] = "x" * MAX_ANSWER
    with pytest.raises(ProviderError, match="not a JSON object of at most 1 MB"):
        await accounts.provider.identify(ATTEMPT, {"code": "x"})


@pytest.mark.parametrize(
    "other",
    [{"kty": "EC", "crv": "BP-256", "x": "aa", "y": "aa"}, {"use": "sig"}, {"kty": "RSA", "n": 5}, {"kty": "AKP"}, "x"],
)
async def test_a_key_that_nobody_here_can_read_keeps_nobody_from_signing_in_by_another(
    accounts: Accounts, other: object
) -> None:
    accounts.others.append(other)
    assert await accounts.provider.identify(ATTEMPT, {"code": "x"}) == Person("Ada", Role.OPERATOR)


async def test_a_provider_that_tells_of_itself_what_cannot_be_is_named(accounts: Accounts) -> None:
    accounts.more = {"code_challenge_methods_supported": 256}
    with pytest.raises(ProviderError, match="does not support PKCE with S256"):
        await accounts.provider.identify(ATTEMPT, {"code": "x"})
