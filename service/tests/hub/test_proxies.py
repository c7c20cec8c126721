"""The console and the feeds behind real proxies, with the configuration of docs/how-to/proxies.md.

Each claim of the page about nginx, Traefik and Envoy is a test here. Most have a control: the same proxy without the
option under test, which then fails as the page says.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import cv2
import grpc
import numpy as np
import pytest
from aiohttp import abc
from harness.browser import run_browser
from harness.need import BROWSER, ENVOY, NGINX, POSTGRES, TRAEFIK
from harness.servers.certificates import Pair, SiteAuthority
from harness.servers.proxies import CONSOLE, FEEDS, PAGE, Envoy, Hub, Nginx, ReverseProxy, Setup, Traefik
from harness.stored import Stored
from yarl import URL

from embereye.camera.live import LivePictures
from embereye.hub.plans.images import MAX_BYTES
from embereye.levels import Kind, Level, Sense
from embereye.process.addresses import free_port
from embereye.process.http.connections import IDLE_SECONDS
from embereye.process.tasks import beside
from embereye.process.timing.clock import now_ns
from embereye.process.tls.client import ClientTls, dial
from embereye.shard.links import Links
from embereye.units import SECOND
from embereye.v1.alarms_pb2 import AlarmEvent, FollowRequest, FollowResponse, Selection, SubscribeRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye.v1.evidence_pb2 import Coverage, DeviceStatus, EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from http.cookies import Morsel
    from pathlib import Path

    from harness.hubs import HubProcess

    Run = Callable[..., Awaitable["Front"]]

FLEET, CAMERA, ZONE = "default/cameras/yard", "cam-1", "yard"
BASE = "/fire"
JPEG = bytes(cv2.imencode(".jpg", np.full((240, 320, 3), 120, np.uint8))[1])
PNG = bytes(cv2.imencode(".png", np.full((60, 100, 3), 200, np.uint8))[1])
SUBSCRIBE = SubscribeRequest(live_only=True)
PRODUCTS = [
    pytest.param(Nginx, marks=pytest.mark.needs(NGINX), id="nginx"),
    pytest.param(Traefik, marks=pytest.mark.needs(TRAEFIK), id="traefik"),
    pytest.param(Envoy, marks=pytest.mark.needs(ENVOY), id="envoy"),
]


class Loopback(abc.AbstractResolver):
    """Resolves every name to this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[abc.ResolveResult]:
        here = abc.ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)
        return [here]

    async def close(self) -> None:
        """Do nothing."""


@dataclass
class Front:
    """A running proxy in front of a hub, as people and programs use it."""

    proxy: ReverseProxy
    token: str
    session: aiohttp.ClientSession

    @property
    def origin(self) -> str:
        return f"https://{CONSOLE}:{self.proxy.port}"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def url(self, path: str) -> URL:
        return URL(f"{self.origin}{self.proxy.setup.path}{path}", encoded=True)

    def feeds(self) -> grpc.aio.Channel:
        """A channel to the feeds."""
        tls = ClientTls(self.proxy.ca, server_name=self.proxy.feeds_name)
        return dial(f"127.0.0.1:{self.proxy.feeds_port}", tls, token=self.token)

    async def status(self, path: str, **headers: str) -> int:
        async with self.session.get(self.url(path), headers=headers, allow_redirects=False) as response:
            return response.status

    async def sign_in(self, **headers: str) -> Morsel[str]:
        """Sign in as the console does; return the session's cookie."""
        sent = {"Origin": self.origin, **headers}
        async with self.session.post(self.url("/v1/session"), json={"token": self.token}, headers=sent) as response:
            assert response.status == 200, await response.text()
            (cookie,) = response.cookies.values()
            return cookie

    async def signed_in(self) -> dict[str, str]:
        """The headers of a signed-in browser."""
        cookie = await self.sign_in()
        return {"Cookie": f"{cookie.key}={cookie.value}", "Origin": self.origin}

    async def upload(self, name: str, picture: bytes) -> int:
        """Store a plan; return the status."""
        headers = {**self.bearer, "Content-Type": "image/png"}
        async with self.session.put(self.url(f"/v1/plans/{quote(name)}"), data=picture, headers=headers) as response:
            await response.read()
            return response.status


@pytest.fixture(params=PRODUCTS)
def product(request: pytest.FixtureRequest) -> type[ReverseProxy]:
    """Each proxy of the page."""
    kind: type[ReverseProxy] = request.param
    return kind


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A certificate for the names of the page."""
    return SiteAuthority(tmp_path / "certificates").issue("site", alternatives=(CONSOLE, FEEDS))


@pytest.fixture
async def run_proxy(tmp_path: Path, pair: Pair) -> AsyncIterator[Run]:
    """A function that runs a proxy in front of hubs until the test ends."""
    async with contextlib.AsyncExitStack() as stack:

        async def run(product: type[ReverseProxy], token: str, *hubs: Hub, **options: Any) -> Front:
            proxy = product(tmp_path / f"proxy-{free_port()}", pair, Setup(hubs, **options))
            stack.callback(proxy.stop)
            await asyncio.to_thread(proxy.start)
            connector = aiohttp.TCPConnector(resolver=Loopback(), ssl=ClientTls(pair.ca).context())
            session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            return Front(proxy, token, await stack.enter_async_context(session))

        yield run


async def run_hub(make_hub: Callable[..., HubProcess], stored: Stored, *arguments: str) -> HubProcess:
    hub = make_hub(stored, "--allowed-host", CONSOLE, *arguments)
    hub.start()
    await hub.ready()
    return hub


@pytest.fixture
async def hub(make_hub: Callable[..., HubProcess], tmp_path: Path) -> HubProcess:
    """A running hub."""
    (tmp_path / "hub").mkdir()
    return await run_hub(make_hub, Stored(tmp_path / "hub"))


def ports(hub: HubProcess, http: int = 0) -> Hub:
    """The ports of `hub` for a proxy; `http`: of a relay in front of it."""
    return Hub(http or hub.http_port, int(hub.grpc.rpartition(":")[2]))


async def burn(hub: HubProcess) -> None:
    """Let a camera's shard report a fire, and wait until it is stored."""
    now = time.time_ns()
    item = EvidenceItem(
        id=f"e-{now}", episode=f"e-{now}", fleet=FLEET, device=CAMERA, zone=ZONE, kind=Kind.FLAME.wire,
        sense=Sense.CAMERA.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip
    async with hub.channel(hub.control) as link:
        call = EvidenceStub(link).Report(timeout=60, wait_for_ready=True)
        await call.write(ReportRequest(hello=ShardHello(fleet=FLEET, shard="yard-1", epoch=1)))
        await call.write(ReportRequest(evidence=item))
        async for response in call:
            if item.id in response.acknowledged:
                break
        call.cancel()


@contextlib.asynccontextmanager
async def filming(hub: HubProcess) -> AsyncIterator[None]:
    """Run the shard of a camera, which sends live pictures while somebody looks."""
    roster = FleetRoster(fleet=FLEET, epoch=1, deadline_ns=600 * SECOND, devices=[Device(id=CAMERA, zone=ZONE)])
    async with hub.channel(hub.control) as link:
        await RosterStub(link).Set(roster, timeout=60, wait_for_ready=True)
    pictures = LivePictures()

    async def film() -> None:
        while True:
            pictures.offer(CAMERA, JPEG, now_ns())
            await asyncio.sleep(0.1)

    shard = pictures.run(Links(hub.control), lambda: Coverage(fleet=FLEET, shard="yard-0"))
    async with beside(shard, name="shard"), beside(film(), name="film"), beside(cover(hub), name="cover"):
        yield


async def cover(hub: HubProcess) -> None:
    """Report the camera as watched, until cancelled."""
    async with hub.channel(hub.control) as link:
        call = EvidenceStub(link).Report(wait_for_ready=True)
        await call.write(ReportRequest(hello=ShardHello(fleet=FLEET, shard="yard-0", epoch=1)))
        while True:
            now = time.time_ns()
            status = DeviceStatus(
                id=CAMERA, zone=ZONE, covered=True, state="streaming", heard_ns=now, analysed_ns=now, picture=JPEG
            )
            coverage = Coverage(fleet=FLEET, shard="yard-0", epoch=1, time_ns=now, devices=[status])
            await call.write(ReportRequest(coverage=coverage))
            await asyncio.sleep(0.5)


async def receive_alarm(events: aiohttp.ClientWebSocketResponse) -> None:
    """Read events until one is about the zone."""
    while (await events.receive_json(timeout=60)).get("zone") != ZONE:
        pass


async def test_a_person_signs_in_with_a_secure_cookie(
    product: type[ReverseProxy], hub: HubProcess, run_proxy: Run
) -> None:
    front = await run_proxy(product, hub.token, ports(hub))
    async with front.session.get(front.url("/"), allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/login")
    assert await front.status("/login") == 200
    cookie = await front.sign_in()
    assert (cookie.key, cookie["secure"]) == (f"__Host-embereye_{front.proxy.port}", True)
    sent = {"Cookie": f"{cookie.key}={cookie.value}", "Origin": front.origin}
    assert await front.status("/", **sent) == 200
    async with front.session.post(front.url("/v1/access/logout"), json={}, headers=sent) as response:
        assert response.status == 200, await response.text()
    assert await front.status("/v1/access/me", **sent) == 401


async def test_live_events_and_pictures_reach_a_signed_in_browser(
    product: type[ReverseProxy], hub: HubProcess, run_proxy: Run
) -> None:
    front = await run_proxy(product, hub.token, ports(hub))
    sent = await front.signed_in()
    async with (
        filming(hub),
        front.session.ws_connect(front.url("/v1/alarms/ws"), headers=sent) as events,
        front.session.ws_connect(front.url(f"/v1/devices/{FLEET}/{CAMERA}/live"), headers=sent) as live,
    ):
        assert (await live.receive_bytes(timeout=60))[8:] == JPEG
        await burn(hub)
        await receive_alarm(events)


async def test_a_plan_of_16_mib_is_accepted(product: type[ReverseProxy], hub: HubProcess, run_proxy: Run) -> None:
    front = await run_proxy(product, hub.token, ports(hub))
    assert await front.upload("Ground floor", PNG.ljust(MAX_BYTES, b"\0")) == 200
    assert await front.status("/v1/plans/Ground%20floor/image", **front.bearer) == 200


async def test_a_program_follows_feeds_longer_than_the_limits_that_the_example_lifts(
    product: type[ReverseProxy], hub: HubProcess, run_proxy: Run
) -> None:
    front = await run_proxy(product, hub.token, ports(hub))
    async with front.feeds() as link:
        following, subscription = await follow(link), subscribe(link)
        for option, limited, ended in product.limits:
            hasty = await run_proxy(product, hub.token, ports(hub), changes={option: limited})
            assert await end_of(hasty, ended) != grpc.StatusCode.OK
        await following.write(FollowRequest(selection=Selection(zones=[ZONE])))
        assert (await read(following)).HasField("selected")
        await burn(hub)
        assert (await read(following)).event.zone == ZONE
        await read_alarm(subscription)


async def end_of(front: Front, name: str) -> grpc.StatusCode:
    """Begin a quiet call, "Follow" or "Subscribe", and return the status with which it ends."""
    async with front.feeds() as link:
        if name == "Subscribe":
            return await asyncio.wait_for(AlarmsStub(link).Subscribe(SUBSCRIBE, wait_for_ready=True).code(), 60)
        call = AlarmsStub(link).Follow(wait_for_ready=True)
        await call.write(FollowRequest(start=SUBSCRIBE))
        return await asyncio.wait_for(call.code(), 60)


async def follow(link: grpc.aio.Channel) -> grpc.aio.StreamStreamCall[FollowRequest, FollowResponse]:
    """Begin Alarms/Follow, whose request does not end."""
    call = AlarmsStub(link).Follow(wait_for_ready=True)
    await call.write(FollowRequest(start=SUBSCRIBE))
    assert (await read(call)).HasField("selected")
    return call


async def read(call: grpc.aio.StreamStreamCall[FollowRequest, FollowResponse]) -> FollowResponse:
    answer = await asyncio.wait_for(call.read(), 60)
    assert isinstance(answer, FollowResponse)
    return answer


def subscribe(link: grpc.aio.Channel) -> grpc.aio.UnaryStreamCall[SubscribeRequest, AlarmEvent]:
    """Begin Alarms/Subscribe with the oldest event."""
    return AlarmsStub(link).Subscribe(SubscribeRequest(), wait_for_ready=True)


async def read_alarm(call: grpc.aio.UnaryStreamCall[SubscribeRequest, AlarmEvent]) -> None:
    """Read events until one is about the zone."""
    async with asyncio.timeout(60):
        async for event in call:
            if event.zone == ZONE:
                return
    raise AssertionError(await call.code())


@pytest.mark.needs(NGINX)
async def test_nginx_counts_the_requests_of_a_call_unless_that_limit_is_off(hub: HubProcess, run_proxy: Run) -> None:
    large = FollowRequest(selection=Selection(zones=[f"{number:0>250}" for number in range(400)]))

    async def is_open_after_a_megabyte(front: Front) -> bool:
        async with front.feeds() as link:
            call = await follow(link)
            for _ in range(12):
                sent = asyncio.gather(call.write(large), call.read(), return_exceptions=True)
                await asyncio.wait_for(sent, 60)
            return not call.done()

    option = "client_max_body_size 0;"
    assert await is_open_after_a_megabyte(await run_proxy(Nginx, hub.token, ports(hub)))
    limited = await run_proxy(Nginx, hub.token, ports(hub), changes={option: ""})
    assert not await is_open_after_a_megabyte(limited)


@pytest.mark.parametrize("removes", [False, True], ids=["stays", "removed"])
async def test_the_hub_appears_below_a_path(
    product: type[ReverseProxy], removes: bool, make_hub: Callable[..., HubProcess], run_proxy: Run, tmp_path: Path
) -> None:
    (tmp_path / "hub").mkdir()
    hub = await run_hub(make_hub, Stored(tmp_path / "hub"), "--base-path", BASE)
    front = await run_proxy(product, hub.token, ports(hub), path=BASE, removes=removes)
    async with front.session.get(front.url("/"), allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, f"{BASE}/login")
    cookie = await front.sign_in()
    assert (cookie.key, cookie["path"]) == (f"__Secure-embereye_{front.proxy.port}_fire", BASE)
    assert await front.upload("Größe (1)", PNG) == 200
    async with front.session.get(front.url("/v1/plans"), headers=front.bearer) as response:
        assert [plan["name"] for plan in (await response.json())["plans"]] == ["Größe (1)"]
    sent = {"Cookie": f"{cookie.key}={cookie.value}", "Origin": front.origin}
    async with front.session.ws_connect(front.url("/v1/alarms/ws"), headers=sent) as events:
        await burn(hub)
        await receive_alarm(events)


def test_the_page_has_the_changes_that_the_tests_make_for_a_path() -> None:
    text = PAGE.read_text()
    for change in ("`location /fire/`", "`proxy_pass http://console/;`", "`match: {prefix: /fire/}`",
                   "`prefix_rewrite: /`"):  # fmt: skip
        assert change in text


class Relay:
    """A TCP relay in front of a hub, which notes the end that closes each connection first."""

    def __init__(self, hub: HubProcess) -> None:
        self._hub_port = hub.http_port
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0
        self.connections = 0
        self.closed: asyncio.Queue[str] = asyncio.Queue()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the proxy."""
        task = asyncio.current_task()
        assert task
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            hub_reader, hub_writer = await asyncio.open_connection("127.0.0.1", self._hub_port)
            with contextlib.closing(hub_writer):
                await self._relay((reader, writer), (hub_reader, hub_writer))

    async def _relay(
        self,
        proxy: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        hub: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        async with (
            beside(_copy(proxy[0], hub[1]), name="from-proxy") as from_proxy,
            beside(_copy(hub[0], proxy[1]), name="from-hub") as from_hub,
        ):
            done, _ = await asyncio.wait((from_proxy, from_hub), return_when=asyncio.FIRST_COMPLETED)
            self.closed.put_nowait("proxy" if from_proxy in done else "hub")

    async def close(self) -> None:
        """End all connections."""
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def relaying(hub: HubProcess) -> AsyncIterator[Relay]:
    """Run a relay in front of `hub`."""
    relay = Relay(hub)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        await relay.close()


async def test_the_proxy_closes_idle_connections_before_the_hub_does(
    product: type[ReverseProxy], hub: HubProcess, run_proxy: Run
) -> None:
    option, second = product.idle
    seconds = re.search(r"(\d+)s$", option)
    assert seconds
    assert int(seconds[1]) < IDLE_SECONDS
    async with relaying(hub) as relay:
        await run_proxy(product, hub.token, ports(hub, relay.port), changes={option: second})
        assert await asyncio.wait_for(relay.closed.get(), 60) == "proxy"


@pytest.mark.slow
async def test_a_connection_that_is_idle_for_longer_than_the_hub_allows_causes_no_error(
    product: type[ReverseProxy], hub: HubProcess, run_proxy: Run
) -> None:
    option, _ = product.idle
    async with relaying(hub) as relay, relaying(hub) as other:
        front = await run_proxy(product, hub.token, ports(hub, relay.port))
        longer = {option: option.replace("20s", "90s")}
        await run_proxy(product, hub.token, ports(hub, other.port), changes=longer)
        assert await asyncio.wait_for(other.closed.get(), 120) == "hub"
        assert relay.closed.get_nowait() == "proxy"
        connections = relay.connections
        assert await front.status("/login") == 200
        assert relay.connections > connections


@pytest.mark.slow
@pytest.mark.needs(NGINX)
async def test_a_websocket_outlasts_a_proxy_that_ends_what_is_silent_for_15_seconds(
    hub: HubProcess, run_proxy: Run
) -> None:
    # The product with the limit that the page allows; nginx has one for it.
    limit = {"proxy_http_version 1.1;": "proxy_http_version 1.1; proxy_read_timeout 15s; proxy_send_timeout 15s;"}
    front = await run_proxy(Nginx, hub.token, ports(hub), changes=limit)
    async with front.session.ws_connect(front.url("/v1/alarms/ws"), headers=front.bearer, autoping=False) as events:
        for _ in range(2):
            message = await events.receive(timeout=60)
            assert message.type is aiohttp.WSMsgType.PING
            await events.pong(message.data)
        await burn(hub)
        while (message := await events.receive(timeout=60)).type is aiohttp.WSMsgType.PING:
            await events.pong(message.data)
        assert json.loads(message.data)["zone"] == ZONE


@pytest.mark.needs(POSTGRES)
async def test_two_replicas_need_no_stickiness(
    product: type[ReverseProxy], stored_in_postgres: Stored, make_hub: Callable[..., HubProcess], run_proxy: Run,
    tmp_path: Path,
) -> None:  # fmt: skip
    token = "a-token-of-the-admin-that-replicas-share"
    (tmp_path / "token").write_text(token)
    shared = ("--advertise", "127.0.0.1", "--admin-token-file", str(tmp_path / "token"))
    hubs = []
    for number in range(2):
        (tmp_path / f"hub-{number}").mkdir()
        stored = Stored(tmp_path / f"hub-{number}", stored_in_postgres.address, stored_in_postgres.server)
        hubs.append(await run_hub(make_hub, stored, *shared))
    async with relaying(hubs[0]) as first, relaying(hubs[1]) as second:
        upstreams = [ports(hub, relay.port) for hub, relay in zip(hubs, (first, second), strict=True)]
        front = await run_proxy(product, token, *upstreams)
        sent = await front.signed_in()
        assert [await front.status("/v1/access/me", **sent) for _ in range(8)] == [200] * 8
        assert await front.upload("Ground floor", PNG) == 200
        assert [await front.status("/v1/plans/Ground%20floor", **sent) for _ in range(4)] == [200] * 4
        async with contextlib.AsyncExitStack() as stack:
            address = front.url("/v1/alarms/ws")
            alarms = []
            for _ in range(4):
                events = await stack.enter_async_context(front.session.ws_connect(address, headers=sent))
                alarms.append(await stack.enter_async_context(beside(receive_alarm(events), name="events")))
            links = [await stack.enter_async_context(front.feeds()) for _ in range(4)]
            subscriptions = [subscribe(link) for link in links]
            await burn(hubs[0])
            await asyncio.gather(*alarms)
            for call in subscriptions:
                await read_alarm(call)
        assert first.connections
        assert second.connections


@pytest.mark.needs(NGINX)
async def test_nginx_without_a_line_of_the_example_fails_as_the_page_says(hub: HubProcess, run_proxy: Run) -> None:
    async def without(line: str) -> Front:
        return await run_proxy(Nginx, hub.token, ports(hub), changes={line: ""})

    assert await (await without("proxy_set_header Host $http_host;")).status("/login") == 421
    assert await (await without("client_max_body_size 17m;")).upload("Ground floor", PNG.ljust(2**21, b"\0")) == 413
    plain = await without("proxy_set_header X-Forwarded-Proto $scheme;")
    assert not (await plain.sign_in())["secure"]
    front = await without("proxy_set_header Upgrade $http_upgrade;")
    with pytest.raises(aiohttp.WSServerHandshakeError, match="426"):
        await front.session.ws_connect(front.url("/v1/alarms/ws"), headers=front.bearer)


async def test_the_audit_trail_has_the_address_of_the_proxy(
    product: type[ReverseProxy], hub: HubProcess, run_proxy: Run, pair: Pair
) -> None:
    front = await run_proxy(product, hub.token, ports(hub))
    connector = aiohttp.TCPConnector(
        resolver=Loopback(), ssl=ClientTls(pair.ca).context(), local_addr=("127.0.0.9", 0)
    )  # fmt: skip
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        await Front(front.proxy, hub.token, session).sign_in(**{"X-Forwarded-For": "192.0.2.7"})
    async with front.session.get(front.url("/v1/audit"), headers=front.bearer) as response:
        text = await response.text()
    assert "127.0.0.1" in text
    assert "127.0.0.9" not in text
    assert "192.0.2.7" not in text


@pytest.mark.needs(TRAEFIK)
@pytest.mark.parametrize("trusted", [False, True])
async def test_traefik_believes_only_load_balancers_that_are_named(
    trusted: bool, hub: HubProcess, run_proxy: Run
) -> None:
    option = "--entryPoints.web.forwardedHeaders.trustedIPs=10.0.0.0/8"
    assert f"`{option}`" in PAGE.read_text()
    port, address = free_port(), "--entryPoints.websecure.address=:443"
    more = f" --entryPoints.web.address=127.0.0.1:{port}"
    more += f" {option.replace('10.0.0.0', '127.0.0.0')}" * trusted
    router = f'plain: {{rule: "Host(`{CONSOLE}`)", service: console, entryPoints: [web]}}'
    changes = {address: address + more, "  routers:\n": f"  routers:\n    {router}\n"}
    front = await run_proxy(Traefik, hub.token, ports(hub), changes=changes)
    headers = {"X-Forwarded-Proto": "https", "Host": f"{CONSOLE}:{port}"}
    async with front.session.post(
        f"http://{CONSOLE}:{port}/v1/session", json={"token": hub.token}, headers=headers
    ) as response:
        (cookie,) = response.cookies.values()
    assert bool(cookie["secure"]) == trusted


# Chromium registers no service worker behind a certificate that it does not trust.
UNTRUSTED = "An SSL certificate error occurred when fetching the script."
# Notes the paths of the WebSockets by which messages came.
LISTEN = """{
  const Socket = window.WebSocket;
  window.heard = new Set();
  window.WebSocket = class extends Socket {
    constructor(address) {
      super(address);
      this.addEventListener("message", () => window.heard.add(new URL(address).pathname));
    }
  };
}"""


@pytest.mark.needs(BROWSER)
@pytest.mark.parametrize(("path", "removes"), [("", False), (BASE, True)], ids=["root", "path removed"])
async def test_the_console_works_in_a_browser(
    product: type[ReverseProxy], path: str, removes: bool, make_hub: Callable[..., HubProcess], run_proxy: Run,
    tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "hub").mkdir()
    hub = await run_hub(make_hub, Stored(tmp_path / "hub"), "--base-path", path or "/")
    front = await run_proxy(product, hub.token, ports(hub), path=path, removes=removes)
    async with filming(hub), run_browser() as window:
        await window.sign_in(f"{front.origin}{path}", hub.token, insecure=True, before=LISTEN)
        await burn(hub)
        await window.until(f"window.heard.has('{path}/v1/alarms/ws')")
        await window.until("document.querySelector('#events .head')")
        await window.ask("evaluate", script=f"location.hash = 'device?fleet={quote(FLEET, safe='')}&id={CAMERA}'")
        await window.until(f"window.heard.has('{path}/v1/devices/{FLEET}/{CAMERA}/live')")
        await window.until("!document.querySelector('#device-live').classList.contains('blank')")
        assert [line for line in await window.ask("problems") if UNTRUSTED not in line] == []
