"""The identity provider: what it says of itself, its keys, and the way from a code to who somebody is."""

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from embereye.hub.access.roles import Role
from embereye.hub.oidc.attempt import Attempt
from embereye.hub.oidc.claims import name_of, verify
from embereye.hub.oidc.errors import NotProvedError, ProviderError, UnknownKeyError
from embereye.hub.oidc.options import Claims, ProviderOptions, check_url
from embereye.process.tls.trust import trusting

logger = logging.getLogger(__name__)
DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT_SECONDS = 10.0
MAX_ANSWER = 1024 * 1024  # bytes
FRESH_SECONDS = 3_600.0  # that what the provider says of itself, and its keys, are taken for true
PAUSE_SECONDS = 5.0  # between two times that they are asked for because a key is not known


@dataclass(frozen=True)
class Person:
    """Whom the provider proved."""

    name: str
    role: Role


@dataclass(frozen=True)
class _Known:
    told: Mapping[str, Any]
    keys: KeySet
    since: float  # monotonic seconds


class Provider:
    """Everything is asked for when it is first needed: the hub starts, and lets tokens in, without its provider."""

    def __init__(
        self,
        options: ProviderOptions,
        *,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self._clock = clock
        self._steady = steady
        self._known: _Known | None = None
        self._asking = asyncio.Lock()

    async def authorize_url(self, attempt: Attempt) -> str:
        """Where a browser goes to sign in. ProviderError."""
        told = (await self._metadata()).told
        parameters = {
            "response_type": "code",
            "client_id": self.options.client,
            "redirect_uri": attempt.redirect,
            "scope": self.options.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        address = _address(told, "authorization_endpoint", self.options.issuer)
        return f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}"

    async def end_session_url(self, after: str) -> str:
        """Where a browser goes to sign out there as well, and from there to `after`; '' where there is no such page."""
        try:
            told = (await self._metadata()).told
            address = _address(told, "end_session_endpoint", self.options.issuer)
        except ProviderError:
            return ""
        parameters = {"client_id": self.options.client, "post_logout_redirect_uri": after}
        return f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}"

    async def identify(self, attempt: Attempt, answer: Mapping[str, str]) -> Person:
        """Whom the provider's `answer`, the query that a browser came back with, proves.

        Raises NotProvedError, or ProviderError.
        """
        known = await self._metadata()
        self._check_answer(known, answer)
        tokens = await self._exchange(known, attempt, answer["code"])
        token = tokens.get("id_token")
        if not isinstance(token, str):
            raise NotProvedError(f"{self.options.host} gave no ID token: is openid among the scopes?")
        claims = await self._verify(known, token, attempt.nonce)
        if not self.options.roles.told(claims) and isinstance(tokens.get("access_token"), str):
            claims = {**await self._user_info(known, tokens["access_token"], claims["sub"]), **claims}
        name, role = name_of(claims, self.options.names), self.options.roles.role(claims)
        if role is None:
            raise NotProvedError(
                f"{name} has no role here: {self.options.roles.claim} has none of the values that give one"
            )
        return Person(name, role)

    def _check_answer(self, known: _Known, answer: Mapping[str, str]) -> None:
        # RFC 9207: an answer of another provider is none, whatever it says.
        issuer = answer.get("iss", "")
        expected = known.told.get("authorization_response_iss_parameter_supported") is True
        if (issuer or expected) and not hmac.compare_digest(issuer.encode(), self.options.issuer.encode()):
            raise NotProvedError(f'the answer is from "{issuer[:200]}", not from {self.options.issuer}')
        if error := answer.get("error", ""):
            detail = answer.get("error_description", "")[:200]
            raise NotProvedError(f"{self.options.host} says {error[:80]}" + f": {detail}" * bool(detail))
        if not answer.get("code"):
            raise NotProvedError(f"{self.options.host} sent no code")

    async def _exchange(self, known: _Known, attempt: Attempt, code: str) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect,
            "code_verifier": attempt.verifier,
        }
        headers = {}
        if secret := self._secret():
            supported = known.told.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            if "client_secret_basic" in supported:
                # Both are form-encoded first (RFC 6749, section 2.3.1).
                pair = f"{quote(self.options.client, safe='')}:{quote(secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                form |= {"client_id": self.options.client, "client_secret": secret}
        else:
            form["client_id"] = self.options.client
        address = _address(known.told, "token_endpoint", self.options.issuer)
        return await self._ask("POST", address, refused=NotProvedError, data=form, headers=headers)

    def _secret(self) -> str:
        if self.options.secret_file is None:
            return ""
        try:
            secret = self.options.secret_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ProviderError(f"the client's secret cannot be read: {error}") from error
        if not secret:
            raise ProviderError(f"{self.options.secret_file} is empty: it has to have the client's secret")
        return secret

    async def _verify(self, known: _Known, token: str, nonce: str) -> Claims:
        def checked(keys: KeySet) -> Claims:
            return verify(
                token, keys, issuer=self.options.issuer, client=self.options.client, nonce=nonce, now=self._clock()
            )

        try:
            return checked(known.keys)
        except UnknownKeyError:
            # It may have new ones.
            return checked((await self._metadata(newer_than=known)).keys)

    async def _user_info(self, known: _Known, token: str, subject: str) -> Claims:
        if not known.told.get("userinfo_endpoint"):
            return {}
        address = _address(known.told, "userinfo_endpoint", self.options.issuer)
        told = await self._ask("GET", address, headers={"Authorization": f"Bearer {token}"})
        if told.get("sub") != subject:
            raise NotProvedError("the user information is somebody else's")
        return told

    # What it says of itself

    async def _metadata(self, newer_than: _Known | None = None) -> _Known:
        async with self._asking:
            known, now = self._known, self._steady()
            if known and known is not newer_than and now - known.since < FRESH_SECONDS:
                return known
            if known and known is newer_than and now - known.since < PAUSE_SECONDS:
                return known
            self._known = await self._learn()
            return self._known

    async def _learn(self) -> _Known:
        issuer = self.options.issuer
        told = await self._ask("GET", issuer.rstrip("/") + DISCOVERY)
        if told.get("issuer") != issuer:
            raise ProviderError(f'{issuer} calls itself "{str(told.get("issuer"))[:200]}": name the issuer exactly so')
        methods = told.get("code_challenge_methods_supported")
        if methods is not None and not (isinstance(methods, list) and "S256" in methods):
            raise ProviderError(f"{issuer} does not know PKCE with S256")
        keys = await self._ask("GET", _address(told, "jwks_uri", issuer))
        try:
            return _Known(told, _usable(keys["keys"]), self._steady())
        except (KeyError, TypeError, ValueError) as error:
            raise ProviderError(f"the keys of {issuer} cannot be read: {error}") from error

    async def _ask(
        self, method: str, address: str, *, refused: type[Exception] = ProviderError, **arguments: Any
    ) -> Mapping[str, Any]:
        """The JSON object that `address` answers; `refused` is raised where it answers 4xx."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        host = urlsplit(address).netloc
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=trusting()),
                    timeout=timeout,
                    trust_env=True,
                    cookie_jar=aiohttp.DummyCookieJar(),
                ) as session,
                session.request(method, address, allow_redirects=False, **arguments) as response,
            ):
                content, status = await _read(response), response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            sentence = str(error) or f"no answer in {TIMEOUT_SECONDS:.0f} s"
            raise ProviderError(f"{host} cannot be asked: {sentence}") from error
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if status != 200:
            said = found.get("error_description") or found.get("error") if isinstance(found, dict) else ""
            kind = refused if 400 <= status < 500 else ProviderError
            raise kind(f"{host} answers {status} for {urlsplit(address).path}" + f": {str(said)[:200]}" * bool(said))
        if not isinstance(found, dict):
            raise ProviderError(f"{host} answers {urlsplit(address).path} with what is no JSON object of at most 1 MB")
        return found


def _usable(keys: Iterable[Any]) -> KeySet:
    """Those that can be read and sign; others beside them are for others (RFC 7517, 5). ValueError where none can."""
    found, why = [], "there are none"
    for key in keys:
        try:
            if key.get("use", "sig") == "sig":
                found.append(KeySet.registry_cls.import_key(key))
        except (JoseError, KeyError, TypeError, ValueError, AttributeError) as error:
            why = str(error)
    if not found:
        raise ValueError(why)
    return KeySet(found)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """All of an answer; nothing of one that is longer than MAX_ANSWER."""
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > MAX_ANSWER:
            return b""
    return bytes(content)


def _address(told: Mapping[str, Any], name: str, issuer: str) -> str:
    address = told.get(name)
    if not isinstance(address, str) or not address:
        raise ProviderError(f"{issuer} names no {name}")
    try:
        check_url(address, loopback=urlsplit(issuer).scheme == "http")
    except ValueError as error:
        raise ProviderError(f"{name} of {issuer}: {error}") from error
    return address
