"""Access over HTTP and gRPC, and the audit trail."""

import asyncio
import json
import resource
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness.eventually import eventually
from prometheus_client import CollectorRegistry

from embereye.hub.access import keeper
from embereye.hub.access.admin_file import prepare
from embereye.hub.access.attempts import BURST
from embereye.hub.access.keeper import Access, DeniedError, SlowDownError
from embereye.hub.committer import StoreFailingError
from embereye.hub.database import StoreError
from embereye.hub.databases.store import Store, StoreThreads
from embereye.hub.http.api import Api
from embereye.hub.hub import Hub
from embereye.hub.roles import Principal, Role, read_scope
from embereye.hub.services.access import AccessCheck, AccessService
from embereye.hub.services.alarms import AlarmsService
from embereye.hub.services.feed import add_alarms
from embereye.hub.tables.access import ADMIN_PLACES, SESSIONS
from embereye.hub.tables.transaction import StoredState, Transaction
from embereye.levels import Kind, Level
from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.process.http.server import bound_port, serve_http
from embereye.process.lifecycle import UserError
from embereye.units import HOUR
from embereye.v1 import access_pb2 as messages
from embereye.v1.access_pb2_grpc import AccessStub, add_AccessServicer_to_server
from embereye.v1.alarms_pb2 import ActionRequest, SubscribeRequest, ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.evidence_pb2 import EvidenceItem

ADMIN = "an-admins-token-of-forty-characters-or-so"
ME = Principal("admin", Role.ADMIN, "admin", "10.0.0.9")


class Steady:
    now = 0

    def __call__(self) -> int:
        return self.now


@dataclass
class Site:
    hub: Hub
    base: str
    grpc: str

    async def ask(self, path: str, body: object = None, *, token: str = "", method: str = "", cookies: Any = None,
                  **headers: str) -> tuple[int, Any, Any]:  # fmt: skip
        """Send one request without stored cookies; return its status, its JSON and the response."""
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else json.dumps(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(cookies=cookies) as session,
            session.request(
                method or ("POST" if body is not None else "GET"), self.base + path, data=data,
                headers={**shown, **kind, **headers}, allow_redirects=False,
            ) as response,
        ):  # fmt: skip
            text = await response.text()
            return response.status, json.loads(text) if response.content_type == "application/json" else text, response

    async def sign_in(self, **proof: str) -> dict[str, str]:
        status, _, response = await self.ask("/v1/session", proof, Origin=self.base)
        assert status == 200
        return {name: cookie.value for name, cookie in response.cookies.items()}

    async def alarm(self) -> None:
        item = EvidenceItem(id="e1", episode="e1", fleet="default/sensors/s", device="s-1", zone="hall",
                            kind=Kind.SMOKE.wire, level=Level.ALARM.wire, since_ns=1, until_ns=1)  # fmt: skip
        self.hub.inbox.admit(item, lambda _: None)
        await self.hub.committer.flush(10)


@asynccontextmanager
async def running(folder: Path, admin: str = ADMIN) -> AsyncIterator[Site]:
    store = StoreThreads(folder)
    hub = Hub(store, retention_ns=10**15)
    await hub.open()
    hub.access.set_admin_token(admin)
    writing = asyncio.ensure_future(hub.run())
    server = GrpcServer(
        [
            Service(add_alarms, AlarmsService(hub), "embereye.v1.Alarms"),
            Service(add_AccessServicer_to_server, AccessService(hub), "embereye.v1.Access"),
        ],
        interceptors=[AccessCheck(hub.access)],
    )
    port = server.listen("127.0.0.1:0")
    await server.start()
    web = await serve_http(Api(hub).app(CollectorRegistry()), "127.0.0.1", 0)
    yield Site(hub, f"http://127.0.0.1:{bound_port(web)}", f"127.0.0.1:{port}")
    await server.stop(0)
    await web.cleanup()
    await hub.committer.flush(10)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await store.close()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running(tmp_path) as opened:
        yield opened


# Open paths


async def test_only_health_and_the_login_page_answer_without_a_token(site: Site) -> None:
    device = "/v1/devices/default/sensors/s/s-1"
    for path in (
        "/v1/zones", "/v1/devices", "/v1/history", "/v1/outputs", "/metrics", "/v1/audit", "/v1/access/tokens",
        "/v1/access/me", "/v1/alarms/ws", "/v1/alarms/a/clips", "/v1/alarms/a/s/1.jpg", f"/v1/clips/{'0' * 64}.mkv",
        f"{device}/snapshot.jpg", f"{device}/thermal", "/v1/snapshot/s-1.jpg", "/nowhere",
    ):  # fmt: skip
        status, body, response = await site.ask(path)
        assert (status, "sign in at /login" in body["error"]) == (401, True), path
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
    for path in ("/v1/zones/default/hall/acknowledge", "/v1/access/tokens", "/v1/access/links", "/v1/access/logout"):
        assert (await site.ask(path, {}))[0] == 401
    for path in ("/healthz", "/login", "/static/login.js", "/static/console.css"):
        assert (await site.ask(path))[0] == 200
    status, _, response = await site.ask("/")
    assert (status, response.headers["Location"]) == (303, "/login")


async def test_only_health_answers_without_a_token_over_grpc(site: Site) -> None:
    async with channel(site.grpc) as link:
        health = health_pb2_grpc.HealthStub(link)
        await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        calls = [
            AlarmsStub(link).Zones(ZonesRequest(), timeout=10),
            AlarmsStub(link).Acknowledge(ActionRequest(zone="hall"), timeout=10),
            AccessStub(link).WhoAmI(messages.WhoAmIRequest(), timeout=10),
            AlarmsStub(link).Subscribe(SubscribeRequest(), timeout=10).read(),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert "embereye access create" in (caught.value.details() or "")


# Roles


async def test_each_role_has_its_permissions_only(site: Site) -> None:
    await site.alarm()
    tokens = {role: await site.hub.access.create_token(ME, f"{role.word} one", role) for role in Role}
    acknowledge, made = "/v1/zones/default/hall/acknowledge", {"name": "x", "role": "viewer"}
    for role, answers in {Role.VIEWER: (200, 403, 403, 403), Role.OPERATOR: (200, 403, 403, 200)}.items():
        status = [
            (await site.ask("/v1/zones", token=tokens[role]))[0],
            (await site.ask("/v1/audit", token=tokens[role]))[0],
            (await site.ask("/v1/access/tokens", made, token=tokens[role]))[0],
            (await site.ask(acknowledge, {}, token=tokens[role]))[0],
        ]
        assert tuple(status) == answers
    async with channel(site.grpc, token=tokens[Role.VIEWER]) as link:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await AlarmsStub(link).Reset(ActionRequest(zone="hall"), timeout=10)
        assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert caught.value.details() == "viewer one is viewer: this takes the role operator"
        with pytest.raises(grpc.aio.AioRpcError):
            await AccessStub(link).ListTokens(messages.ListTokensRequest(), timeout=10)
        assert (await AccessStub(link).WhoAmI(messages.WhoAmIRequest(), timeout=10)).role == messages.ROLE_VIEWER


# Tokens


async def test_a_token_is_created_listed_revoked_and_stored_as_a_digest(site: Site, tmp_path: Path) -> None:
    async with channel(site.grpc, token=ADMIN) as link:
        stub = AccessStub(link)
        request = messages.CreateTokenRequest(name="north wing", role=messages.ROLE_OPERATOR)
        token = (await stub.CreateToken(request, timeout=10)).token
        assert token.startswith("ee_")
        (listed,) = (await stub.ListTokens(messages.ListTokensRequest(), timeout=10)).tokens
        assert (listed.name, listed.role, listed.made_by) == ("north wing", messages.ROLE_OPERATOR, "admin")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateToken(request, timeout=10)
        assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
        assert (await site.ask("/v1/zones", token=token))[0] == 200
        stored = (tmp_path / "hub.sqlite").read_bytes() + (tmp_path / "hub.sqlite-wal").read_bytes()
        assert token.encode() not in stored
        await stub.RevokeToken(messages.RevokeTokenRequest(name="north wing"), timeout=10)
        assert (await site.ask("/v1/zones", token=token))[0] == 401
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.RevokeToken(messages.RevokeTokenRequest(name="north wing"), timeout=10)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_tokens_and_sessions_survive_a_restart_and_revoked_ones_do_not(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        scope = read_scope(["default/kitchen", "default/sensors/annex"])
        valid = await site.hub.access.create_token(ME, "valid", Role.VIEWER, scope)
        revoked = await site.hub.access.create_token(ME, "revoked", Role.VIEWER)
        (cookie,), (ended,) = (await site.sign_in(token=valid)).values(), (await site.sign_in(token=revoked)).values()
        await site.hub.access.revoke(ME, "revoked")
    async with running(tmp_path) as site:
        assert (await site.ask("/v1/zones", token=valid))[0] == 200
        assert (await site.ask("/v1/zones", token=revoked))[0] == 401
        access = site.hub.access
        assert access.resume(cookie, "10.0.0.1").name == "valid"
        assert access.resume(cookie, "10.0.0.1").scope == access.identify(valid, "10.0.0.1").scope == scope
        with pytest.raises(DeniedError):
            access.resume(ended, "10.0.0.1")


async def test_a_token_revoked_while_the_store_fails_remains_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: Store, transaction: object) -> None:
        raise StoreError("database or disk is full")

    async with running(tmp_path) as site:
        token = await site.hub.access.create_token(ME, "gone", Role.VIEWER)
        with monkeypatch.context() as fault:
            fault.setattr(Store, "commit", full)
            with pytest.raises(StoreFailingError):
                await site.hub.access.create_token(ME, "other", Role.VIEWER)
            status, body, _ = await site.ask("/v1/access/tokens/gone", token=ADMIN, method="DELETE")
            assert (status, "disk is full" in body["error"]) == (503, True)
            assert (await site.ask("/v1/zones", token=token))[0] == 401
    async with running(tmp_path) as site:
        assert (await site.ask("/v1/zones", token=token))[0] == 401


async def test_revoking_a_token_ends_its_sessions_and_streams(site: Site) -> None:
    token = await site.hub.access.create_token(ME, "wall", Role.VIEWER)
    async with channel(site.grpc, token=token) as link, aiohttp.ClientSession() as session:
        feed = AlarmsStub(link).Subscribe(SubscribeRequest())
        await feed.initial_metadata()
        shown = {"Authorization": f"Bearer {token}"}
        async with session.ws_connect(f"{site.base}/v1/alarms/ws", headers=shown) as socket:
            await site.hub.access.revoke(ME, "wall")
            message = await asyncio.wait_for(socket.receive(), 10)
            assert (message.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 1008)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(feed.read(), 10)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("name", ["", " x", "x" * 64, "a\nb", "admin", "é"])
async def test_a_misleading_name_is_refused(site: Site, name: str) -> None:
    status, body, _ = await site.ask("/v1/access/tokens", {"name": name, "role": "viewer"}, token=ADMIN)
    assert status in {400, 409}
    assert body["error"]


# Browsers


async def test_a_person_signs_in_acts_under_their_name_and_signs_out(site: Site) -> None:
    await site.alarm()
    token = await site.hub.access.create_token(ME, "ada", Role.OPERATOR)
    status, body, response = await site.ask("/v1/session", {"token": token}, Origin=site.base)
    assert (status, body) == (200, {"name": "ada", "role": "operator"})
    (cookie,) = response.cookies.values()
    assert (cookie["httponly"], cookie["samesite"], cookie["secure"], cookie["path"]) == (True, "Strict", "", "/")
    cookies = {cookie.key: cookie.value}
    assert (await site.ask("/v1/access/me", cookies=cookies))[1]["name"] == "ada"
    acknowledge = "/v1/zones/default/hall/acknowledge"
    assert (await site.ask(acknowledge, {}, cookies=cookies))[0] == 403  # a cookie alone does nothing
    assert (await site.ask(acknowledge, {}, cookies=cookies, Origin="https://evil.example"))[0] == 403
    status, body, _ = await site.ask(acknowledge, {"note": "going"}, cookies=cookies, Origin=site.base)
    assert (status, body["who"], body["why"]) == (200, "ada", "acknowledged by ada: going")
    assert (await site.ask("/v1/access/logout", {}, cookies=cookies, Origin=site.base))[0] == 200
    assert (await site.ask("/v1/zones", cookies=cookies))[0] == 401


@pytest.mark.parametrize("protocol", ["https", "HTTPS, http"], ids=["one proxy", "two proxies"])
async def test_a_cookie_behind_tls_is_never_sent_unencrypted(site: Site, protocol: str) -> None:
    _, _, response = await site.ask("/v1/session", {"token": ADMIN}, **{"X-Forwarded-Proto": protocol})
    (cookie,) = response.cookies.values()
    assert (cookie.key.startswith("__Host-"), cookie["secure"]) == (True, True)


@pytest.mark.parametrize("protocol", ["https", "wss", "WSS, http"])
async def test_a_browser_behind_tls_opens_the_feed(site: Site, protocol: str) -> None:
    _, _, response = await site.ask("/v1/session", {"token": ADMIN}, **{"X-Forwarded-Proto": "https"})
    (cookie,) = response.cookies.values()
    sent = {
        "Cookie": f"{cookie.key}={cookie.value}", "Origin": site.base.replace("http", "https", 1),
        "X-Forwarded-Proto": protocol,
    }  # fmt: skip
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.ws_connect(f"{site.base}/v1/alarms/ws?alive_ms=1000", headers=sent) as socket,
    ):
        assert (await socket.receive_json(timeout=30))["type"] == "TYPE_ALIVE"


async def test_a_link_signs_in_once(site: Site) -> None:
    status, body, _ = await site.ask("/v1/access/links", {"name": "ada", "role": "viewer"}, token=ADMIN)
    assert status == 201
    code = body["path"].removeprefix("/login#")
    cookies = await site.sign_in(code=code)
    assert (await site.ask("/v1/access/me", cookies=cookies))[1] == {"name": "ada", "role": "viewer"}
    assert (await site.ask("/v1/session", {"code": code}, Origin=site.base))[0] == 401


async def test_a_link_has_no_more_rights_than_its_creator(site: Site) -> None:
    token = await site.hub.access.create_token(ME, "ben", Role.OPERATOR)
    assert (await site.ask("/v1/access/links", {"name": "eve"}, token=token))[0] == 403
    _, body, _ = await site.ask("/v1/access/links", {"role": "admin"}, token=token)
    cookies = await site.sign_in(code=body["path"].removeprefix("/login#"))
    assert (await site.ask("/v1/access/me", cookies=cookies))[1] == {"name": "ben", "role": "operator"}


async def test_changing_the_admins_token_ends_its_sessions(site: Site) -> None:
    cookies = await site.sign_in(token=ADMIN)
    site.hub.access.set_admin_token(ADMIN)
    assert (await site.ask("/v1/zones", cookies=cookies))[0] == 200
    site.hub.access.set_admin_token("another-token-of-at-least-32-characters")
    assert (await site.ask("/v1/zones", cookies=cookies))[0] == 401
    assert (await site.ask("/v1/zones", token=ADMIN))[0] == 401


async def test_changing_the_admins_token_while_the_hub_is_down_ends_its_sessions(tmp_path: Path) -> None:
    async with running(tmp_path) as site:
        ((_, cookie),) = (await site.sign_in(token=ADMIN)).items()
        code = site.hub.access.create_link(ME, "ada", Role.OPERATOR)
        led = site.hub.access.sign_in(site.hub.access.use_link(code, "10.0.0.1"), "link")
    async with running(tmp_path) as site:
        assert [site.hub.access.resume(value, "10.0.0.1").name for value in (cookie, led)] == ["admin", "ada"]
    async with running(tmp_path, "another-token-of-at-least-32-characters") as site:
        for value in (cookie, led):
            with pytest.raises(DeniedError):
                site.hub.access.resume(value, "10.0.0.1")
        assert await site.sign_in(token="another-token-of-at-least-32-characters")


def sessions(steady: Steady) -> Access:
    class Committer:
        def enqueue(self, operation: object) -> None:
            pass

    return Access(Committer(), clock=lambda: 0, steady=steady)  # type: ignore[arg-type]


def test_a_session_ends_half_a_day_after_its_page_was_last_open() -> None:
    steady = Steady()
    access = sessions(steady)
    cookie = access.sign_in(ME, "token")
    for _ in range(100):
        steady.now += 11 * HOUR
        assert access.resume(cookie, "10.0.0.1").name == "admin"
    steady.now += 12 * HOUR + 1
    with pytest.raises(DeniedError):
        access.resume(cookie, "10.0.0.1")


def test_a_person_from_a_provider_signs_in_again_after_twelve_hours() -> None:
    steady = Steady()
    access = sessions(steady)
    cookie = access.sign_in(Principal("ada", Role.VIEWER, "", "10.0.0.1"), "accounts.example")
    for _ in range(12):
        steady.now += HOUR
        assert access.resume(cookie, "10.0.0.1").name == "ada"
    steady.now += 1
    with pytest.raises(DeniedError):
        access.resume(cookie, "10.0.0.1")


@pytest.mark.parametrize("name", ["Jörg", "ada (accounts.example)", "HALL\\ada", "a" * 100])
def test_a_person_from_a_provider_can_create_links_under_their_name_there(name: str) -> None:
    access = sessions(Steady())
    cookie = access.sign_in(Principal(name, Role.VIEWER, "", "10.0.0.1"), "accounts.example")
    code = access.create_link(access.resume(cookie, "10.0.0.1"), name, Role.VIEWER)
    assert access.use_link(code, "10.0.0.1").name == name
    with pytest.raises(ValueError, match="is not a name"):
        access.create_link(ME, name, Role.VIEWER)


def test_a_link_does_not_extend_the_time_since_the_providers_proof() -> None:
    steady = Steady()
    access = sessions(steady)
    cookie = access.sign_in(Principal("ada", Role.VIEWER, "", "10.0.0.1"), "accounts.example")
    for _ in range(3):
        steady.now += 3 * HOUR
        code = access.create_link(access.resume(cookie, "10.0.0.1"), "ada", Role.VIEWER)
        cookie = access.sign_in(access.use_link(code, "10.0.0.1"), "link")
    again = sessions(steady)
    state = Transaction()
    access.add_state(state)
    again.restore(StoredState({SESSIONS: state[SESSIONS]}))
    steady.now += 3 * HOUR - HOUR // 2
    code = access.create_link(access.resume(cookie, "10.0.0.1"), "ada", Role.VIEWER)
    steady.now += HOUR // 2 + 1
    for prove, text in (
        (access.resume, cookie),
        (access.use_link, code),
        (again.resume, cookie),
    ):
        with pytest.raises(DeniedError):
            prove(text, "10.0.0.1")


async def test_sessions_and_links_expire_while_the_hubs_machine_is_suspended(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = site.hub.access
    cookie, code = access.sign_in(ME, "token"), access.create_link(ME, "ada", Role.VIEWER)
    assert access.resume(cookie, "10.0.0.1").name == "admin"
    real = time.clock_gettime_ns
    # CLOCK_MONOTONIC stops during a suspension.
    monkeypatch.setattr(
        time, "clock_gettime_ns", lambda which: real(which) + 13 * HOUR * (which == time.CLOCK_BOOTTIME)
    )
    for prove, text in ((access.resume, cookie), (access.use_link, code)):
        with pytest.raises(DeniedError):
            prove(text, "10.0.0.1")


def test_sessions_and_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "MAX_SESSIONS", 3)
    monkeypatch.setattr(keeper, "MAX_LINKS", 3)
    access = sessions(Steady())
    cookies = [access.sign_in(ME, "token") for _ in range(5)]
    links = [access.create_link(ME, "ada", Role.VIEWER) for _ in range(5)]
    for number in range(5):
        for prove, text in ((access.resume, cookies[number]), (access.use_link, links[number])):
            if number >= 2:
                assert prove(text, "10.0.0.1")
            else:
                with pytest.raises(DeniedError):
                    prove(text, "10.0.0.1")


def test_excessive_sign_ins_end_sessions_of_the_same_person_only() -> None:
    steady = Steady()
    access = sessions(steady)
    chief = access.sign_in(ME, "token")
    guest = Principal("guest", Role.VIEWER, "guest", "10.0.0.1")
    cookies = []
    for _ in range(keeper.MAX_SESSIONS + 10):
        cookies.append(access.sign_in(guest, "token"))
        steady.now += keeper.WRITE_NS
    link = access.create_link(ME, "ada", Role.VIEWER)
    for _ in range(keeper.MAX_LINKS + 10):
        access.create_link(guest, "guest", Role.VIEWER)
        steady.now += keeper.WRITE_NS
    assert access.resume(cookies[-1], "10.0.0.1").name == "guest"
    with pytest.raises(DeniedError):
        access.resume(cookies[-1 - keeper.SESSIONS_EACH], "10.0.0.1")
    assert access.resume(chief, "10.0.0.9").name == "admin"
    assert access.use_link(link, "10.0.0.9").name == "ada"


async def test_excessive_sign_ins_are_slowed(site: Site) -> None:
    token = await site.hub.access.create_token(ME, "guest", Role.VIEWER)
    answers = [await site.ask("/v1/session", {"token": token}) for _ in range(keeper.WRITES + 1)]
    assert [status for status, _, _ in answers] == [200] * keeper.WRITES + [429]
    _, refusal, response = answers[-1]
    seconds = response.headers["Retry-After"]
    assert refusal["error"] == f"guest has signed in or created links too often. Try again in {seconds} s."
    async with channel(site.grpc, token=token) as link:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await AccessStub(link).CreateLink(messages.CreateLinkRequest(), timeout=10)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await site.ask("/v1/session", {"token": ADMIN}))[0] == 200


# Guessing


async def test_links_and_sessions_work_while_another_client_guesses_from_the_address(site: Site) -> None:
    code = site.hub.access.create_link(ME, "ada", Role.VIEWER)
    answers = [(await site.ask("/v1/zones", token=f"guess-{number}"))[0] for number in range(BURST + 1)]
    assert answers[-1] == 429
    status, _, response = await site.ask("/v1/session", {"code": code})
    assert status == 200
    cookies = {cookie.key: cookie.value for cookie in response.cookies.values()}
    assert (await site.ask("/v1/zones", cookies=cookies))[0] == 200
    assert (await site.ask("/v1/zones", cookies=dict.fromkeys(cookies, "guess")))[0] == 429


async def guess(site: Site) -> None:
    answers = [(await site.ask("/v1/zones", token=f"guess-{number}"))[0] for number in range(BURST + 3)]
    assert answers == [401] * BURST + [429] * 3


async def test_a_guessing_client_is_slowed_and_valid_tokens_are_let_in(site: Site) -> None:
    fresh = await site.hub.access.create_token(ME, "fresh", Role.VIEWER)
    await guess(site)
    status, body, response = await site.ask("/v1/zones", token="a guess")
    assert (status, "Try again in" in body["error"], int(response.headers["Retry-After"]) > 0) == (429, True, True)
    assert (await site.ask("/v1/zones", token=fresh))[0] == 200
    assert (await site.ask("/v1/session", {"token": fresh}))[0] == 200
    assert (await site.ask("/v1/zones", token=ADMIN))[0] == 429, "a person's invention, never let in from here"
    site.hub.access.set_admin_token("ee_" + "x" * 43)
    assert (await site.ask("/v1/zones", token="ee_" + "x" * 43))[0] == 200, "a random one"
    assert site.hub.access.identify(fresh, "10.9.9.9").name == "fresh"
    async with channel(site.grpc, token="another guess") as link:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_valid_tokens_are_let_in_while_others_guess_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as before:
        token = await before.hub.access.create_token(ME, "ada", Role.VIEWER)
        assert (await before.ask("/v1/zones", token=ADMIN))[0] == 200
    async with running(tmp_path) as after:
        await guess(after)
        assert (await after.ask("/v1/zones", token=token))[0] == 200
        assert (await after.ask("/v1/zones", token=ADMIN))[0] == 200
        async with channel(after.grpc, token=ADMIN) as link:
            await AlarmsStub(link).Zones(ZonesRequest(), timeout=10)
        after.hub.access.set_admin_token("another-invention-" + ADMIN)
        assert (await after.ask("/v1/zones", token="another-invention-" + ADMIN))[0] == 429
    async with running(tmp_path) as third:
        await guess(third)
        assert (await third.ask("/v1/zones", token=ADMIN))[0] == 429, "the change forgot the addresses"


async def test_the_oldest_of_too_many_addresses_of_the_admin_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "MAX_ADMIN_PLACES", 2)
    async with running(tmp_path) as site:
        for number in range(3):
            site.hub.access.identify(ADMIN, f"10.0.0.{number}")
    async with running(tmp_path) as site:
        state = Transaction()
        site.hub.access.add_state(state)
        assert set(state[ADMIN_PLACES]) == {"10.0.0.1", "10.0.0.2"}


def test_guessed_tokens_do_not_count_as_failures_at_the_provider() -> None:
    access = sessions(Steady())
    for number in range(BURST + 1):
        with pytest.raises((DeniedError, SlowDownError)):
            access.identify(f"guess {number}", "10.0.0.1")
    with access.count_failures("10.0.0.1", ValueError):
        pass


def test_a_request_without_a_credential_is_no_guess() -> None:
    access = sessions(Steady())
    for number in range(BURST):
        with pytest.raises(DeniedError):
            access.identify(f"guess {number}", "10.0.0.1")
    with pytest.raises(SlowDownError):
        access.identify("one more", "10.0.0.1")
    assert access.refused == BURST + 1


# The audit trail


async def test_the_audit_trail_has_person_action_time_and_address(site: Site, tmp_path: Path) -> None:
    await site.alarm()
    token = await site.hub.access.create_token(ME, "ada", Role.OPERATOR)
    zone = "/v1/zones/default/hall"
    assert (await site.ask(f"{zone}/acknowledge", {"who": "Ada L.", "note": "going"}, token=token))[0] == 200
    assert (await site.ask(f"{zone}/test", {}, token=token))[0] == 200
    assert (await site.ask(f"{zone}/reset", {}, token=token))[0] == 200
    await site.sign_in(token=token)
    await site.hub.access.revoke(ME, "ada")
    _, body, _ = await site.ask("/v1/audit", token=ADMIN)
    names = ("who", "address", "action", "subject", "detail")
    assert [tuple(entry[name] for name in names) for entry in body["entries"]] == [
        ("admin", "10.0.0.9", "revoke token", "ada", ""),
        ("ada", "127.0.0.1", "sign in", "token", ""),
        ("ada", "127.0.0.1", "reset", "default/hall", "ada"),
        ("ada", "127.0.0.1", "test", "default/hall", "ada"),
        ("ada", "127.0.0.1", "acknowledge", "default/hall", "Ada L. (ada): going"),
        ("admin", "10.0.0.9", "create token", "ada", "operator"),
    ]
    _, body, _ = await site.ask("/v1/audit?limit=1&before=3", token=ADMIN)
    assert [entry["number"] for entry in body["entries"]] == ["2"]
    with sqlite3.connect(tmp_path / "hub.sqlite") as db:
        assert db.execute("SELECT COUNT(*) FROM audit").fetchone() == (6,)


async def test_the_audit_trail_has_the_role_that_a_link_gives(site: Site) -> None:
    token = await site.hub.access.create_token(ME, "ada", Role.VIEWER)
    status, link, _ = await site.ask("/v1/access/links", {"role": "admin"}, token=token)
    assert status == 201
    async with channel(site.grpc, token=token) as call:
        await AccessStub(call).CreateLink(messages.CreateLinkRequest(role=messages.ROLE_OPERATOR), timeout=10)
    _, body, _ = await site.ask("/v1/session", {"code": link["path"].partition("#")[2]})
    assert body["role"] == "viewer"

    async def both_roles() -> list[str]:
        _, trail, _ = await site.ask("/v1/audit", token=ADMIN)
        roles = [entry["detail"] for entry in trail["entries"] if entry["action"] == "create link"]
        return roles if len(roles) == 2 else []

    assert await eventually(both_roles) == ["viewer", "viewer"]


# The file


def test_the_admins_token_is_created_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "admin-token"
    token = prepare(path)
    assert (path.stat().st_mode & 0o777, len(token) > 40, prepare(path)) == (0o600, True, token)
    path.write_text("short\n")
    with pytest.raises(UserError, match="at least 32"):
        prepare(path)


def test_an_admins_token_that_did_not_fit_on_the_disk_is_created_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "admin-token"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # like a full disk: the file is created and remains empty
    try:
        with pytest.raises(UserError, match="admin-token: File too large"):
            prepare(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert prepare(path) == path.read_text().strip()


async def test_half_of_a_character_is_refused_and_changes_nothing(site: Site) -> None:
    await site.alarm()
    for body in ({"who": "A\ud800da"}, {"who": "Ada", "note": "\udfff"}):
        status, answer, _ = await site.ask("/v1/zones/default/hall/acknowledge", body, token=ADMIN)
        assert (status, "half of a character" in answer["error"]) == (400, True)
    zones = (await site.ask("/v1/zones", token=ADMIN))[1]["zones"]
    assert [zone["state"] for zone in zones] == ["ZONE_STATE_ALARM"]
    assert (await site.ask("/v1/zones/default/hall/acknowledge", {"who": "Ada"}, token=ADMIN))[0] == 200
