"""The identity provider: its metadata, its keys, and the exchange of a code for a person.

The routes call `authorize_url` when a browser leaves, and `identify` when it returns. `identify` checks the answer,
exchanges its code for an ID token, verifies that with the provider's keys, and takes name and role from its claims.
Metadata and keys are fetched at first use and reused for an hour; an unknown key fetches them again.

joserfc, the JOSE library of Authlib's authors, checks signatures. The rest is ours and not Authlib's client, because
Authlib 1.9.10 loses what the tests here guarantee. Its client over httpx2, against a local provider:

- read an answer of 50 MB, and waited 16 s for one that arrived byte by byte; here 1 MB and 10 s are the limits
- refused everybody for one unreadable key among good ones, and after a new key took over the old key's id
- sent a secret with ":" or "%" without the encoding of RFC 6749, and failed with one outside Latin-1
- accepted, with its defaults, a token for another audience whose `azp` names this client

Its refusals name a claim, but not the values or the remedy: 2 of 18 had our reason. It checks neither the addresses
in the metadata nor `iss` in the answer (RFC 9207). A hub with a provider grows by 12 MB with it, and by 9 MB with this
module. Its parts without I/O could build two requests and check claims, which are about 40 of our 370 lines.
"""

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from embereye.hub.oidc.attempt import Attempt
from embereye.hub.oidc.claims import name_of, verify
from embereye.hub.oidc.errors import NotProvedError, ProviderError, UnknownKeyError
from embereye.hub.oidc.options import Claims, ProviderOptions, check_url
from embereye.hub.roles import EVERYWHERE, Role, Scope
from embereye.process.tls.trust import trusting

logger = logging.getLogger(__name__)
DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT_SECONDS = 10.0
MAX_ANSWER = 1024 * 1024  # bytes
FRESH_SECONDS = 3_600.0  # the provider's metadata and keys are trusted for this long
PAUSE_SECONDS = 5.0  # shortest time between two fetches because of an unknown key


@dataclass(frozen=True)
class Person:
    """A person with a proof by the provider."""

    name: str
    role: Role
    scope: Scope = EVERYWHERE


@dataclass(frozen=True)
class _Known:
    metadata: Mapping[str, Any]
    keys: KeySet
    since: float  # monotonic seconds


@dataclass(eq=False)
class Provider:
    """The client of the provider. It fetches metadata at first use: the hub starts without its provider."""

    options: ProviderOptions
    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    _known: _Known | None = field(default=None, init=False)
    _fetching: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def authorize_url(self, attempt: Attempt) -> str:
        """The address where a browser signs in. ProviderError."""
        metadata = (await self._metadata()).metadata
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
        address = _address(metadata, "authorization_endpoint", self.options.issuer)
        return f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}"

    async def end_session_url(self, after: str) -> str:
        """The address where a browser signs out of the provider and returns to `after`; '' if the provider has none."""
        try:
            metadata = (await self._metadata()).metadata
            address = _address(metadata, "end_session_endpoint", self.options.issuer)
        except ProviderError:
            return ""
        parameters = {"client_id": self.options.client, "post_logout_redirect_uri": after}
        return f"{address}{'&' if '?' in address else '?'}{urlencode(parameters)}"

    async def identify(self, attempt: Attempt, answer: Mapping[str, str]) -> Person:
        """Return the person that `answer` proves; it is the query that the browser came back with.

        NotProvedError, ProviderError.
        """
        known = await self._metadata()
        self._check_answer(known, answer)
        tokens = await self._exchange(known, attempt, answer["code"])
        token = tokens.get("id_token")
        if not isinstance(token, str):
            raise NotProvedError(f"{self.options.host} sent no ID token. Is openid among the scopes?")
        claims = await self._verify(known, token, attempt.nonce)
        if not self.options.roles.has_claim(claims) and isinstance(tokens.get("access_token"), str):
            claims = {**await self._user_info(known, tokens["access_token"], claims["sub"]), **claims}
        name, role = name_of(claims, self.options.names), self.options.roles.role(claims)
        if role is None:
            raise NotProvedError(f"{name} has no role here: no value of {self.options.roles.claim} gives one")
        return Person(name, role, self.options.roles.scope(claims))

    def _check_answer(self, known: _Known, answer: Mapping[str, str]) -> None:
        # RFC 9207: refuse the answer of another provider.
        issuer = answer.get("iss", "")
        expected = known.metadata.get("authorization_response_iss_parameter_supported") is True
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
            supported = known.metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            if "client_secret_basic" in supported:
                # Both are form-encoded first (RFC 6749, section 2.3.1).
                pair = f"{quote(self.options.client, safe='')}:{quote(secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            else:
                form |= {"client_id": self.options.client, "client_secret": secret}
        else:
            form["client_id"] = self.options.client
        address = _address(known.metadata, "token_endpoint", self.options.issuer)
        return await self._fetch("POST", address, refused=NotProvedError, data=form, headers=headers)

    def _secret(self) -> str:
        if self.options.secret_file is None:
            return ""
        try:
            secret = self.options.secret_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ProviderError(f"the client's secret cannot be read: {error}") from error
        if not secret:
            raise ProviderError(f"{self.options.secret_file} is empty. Write the client's secret into it.")
        return secret

    async def _verify(self, known: _Known, token: str, nonce: str) -> Claims:
        def checked(keys: KeySet) -> Claims:
            return verify(
                token, keys, issuer=self.options.issuer, client=self.options.client, nonce=nonce, now=self.clock()
            )

        try:
            return checked(known.keys)
        except UnknownKeyError:
            # The provider may have new keys.
            return checked((await self._metadata(newer_than=known)).keys)

    async def _user_info(self, known: _Known, token: str, subject: str) -> Claims:
        if not known.metadata.get("userinfo_endpoint"):
            return {}
        address = _address(known.metadata, "userinfo_endpoint", self.options.issuer)
        user = await self._fetch("GET", address, headers={"Authorization": f"Bearer {token}"})
        if user.get("sub") != subject:
            raise NotProvedError("the user information belongs to another person")
        return user

    # Metadata

    async def _metadata(self, newer_than: _Known | None = None) -> _Known:
        async with self._fetching:
            known, now = self._known, self.steady()
            if known and known is not newer_than and now - known.since < FRESH_SECONDS:
                return known
            if known and known is newer_than and now - known.since < PAUSE_SECONDS:
                return known
            self._known = await self._discover()
            return self._known

    async def _discover(self) -> _Known:
        issuer = self.options.issuer
        metadata = await self._fetch("GET", issuer.rstrip("/") + DISCOVERY)
        if metadata.get("issuer") != issuer:
            raise ProviderError(
                f'{issuer} calls itself "{str(metadata.get("issuer"))[:200]}". Use exactly that as the issuer.'
            )
        methods = metadata.get("code_challenge_methods_supported")
        if methods is not None and not (isinstance(methods, list) and "S256" in methods):
            raise ProviderError(f"{issuer} does not support PKCE with S256")
        keys = await self._fetch("GET", _address(metadata, "jwks_uri", issuer))
        try:
            return _Known(metadata, _usable(keys["keys"]), self.steady())
        except (KeyError, TypeError, ValueError) as error:
            raise ProviderError(f"the keys of {issuer} cannot be read: {error}") from error

    async def _fetch(
        self, method: str, address: str, *, refused: type[Exception] = ProviderError, **arguments: Any
    ) -> Mapping[str, Any]:
        """Return the JSON object at `address`; raise `refused` if the answer is 4xx."""
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
            raise ProviderError(f"{host} cannot be reached: {sentence}") from error
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if status != 200:
            reason = answer.get("error_description") or answer.get("error") if isinstance(answer, dict) else ""
            kind = refused if 400 <= status < 500 else ProviderError
            path = urlsplit(address).path
            raise kind(f"{host} answers {status} for {path}" + f": {str(reason)[:200]}" * bool(reason))
        if not isinstance(answer, dict):
            raise ProviderError(f"{host}: the answer for {urlsplit(address).path} is not a JSON object of at most 1 MB")
        return answer


def _usable(keys: Iterable[Any]) -> KeySet:
    """Select the keys that can be read and sign (RFC 7517, section 5). ValueError if there are none."""
    usable, why = [], "there are none"
    for key in keys:
        try:
            if key.get("use", "sig") == "sig":
                usable.append(KeySet.registry_cls.import_key(key))
        except (JoseError, KeyError, TypeError, ValueError, AttributeError) as error:
            why = str(error)
    if not usable:
        raise ValueError(why)
    return KeySet(usable)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read a whole answer; b"" if it is longer than MAX_ANSWER."""
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > MAX_ANSWER:
            return b""
    return bytes(content)


def _address(metadata: Mapping[str, Any], name: str, issuer: str) -> str:
    address = metadata.get(name)
    if not isinstance(address, str) or not address:
        raise ProviderError(f"{issuer} publishes no {name}")
    try:
        check_url(address, loopback=urlsplit(issuer).scheme == "http")
    except ValueError as error:
        raise ProviderError(f"{name} of {issuer}: {error}") from error
    return address
