"""The hub over TLS: console, API and gRPC, for clients that trust it, with a certificate that changes."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp
import grpc
import pytest
from harness.eventually import eventually
from harness.servers.certificates import Pair, SiteAuthority

from embereye.process.grpc_server import channel
from embereye.process.tls.client import ClientTls, dial
from embereye.process.tls.trust import trusting
from embereye.v1.alarms_pb2 import ZonesRequest
from embereye.v1.alarms_pb2_grpc import AlarmsStub

from .site import ALARM_SECONDS, HOST, SMOKE, TOKEN, Site


@dataclass
class Secured:
    site: Site
    authority: SiteAuthority
    shown: Pair

    @property
    def port(self) -> int:
        return self.site.ports["hub"][1]

    async def zones(self, tls: ClientTls | None) -> None:
        async with dial(self.site.hub, tls, token=TOKEN) if tls else channel(self.site.hub, token=TOKEN) as link:
            await AlarmsStub(link).Zones(ZonesRequest(), timeout=20)

    def ask(self, path: str, host: str = HOST, source: str = HOST, **headers: str) -> http.client.HTTPResponse:
        context = trusting(self.shown.ca)
        connection = http.client.HTTPSConnection(
            HOST, self.port, context=context, timeout=30, source_address=(source, 0)
        )
        shown = {"Authorization": f"Bearer {TOKEN}", "Host": f"{host}:{self.port}", **headers}
        connection.request("GET", path, headers=shown)
        return connection.getresponse()

    def command(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "embereye_cli", *arguments]
        shown = {"EMBEREYE_TOKEN": TOKEN, "EMBEREYE_HUB": self.site.hub, "GRPC_VERBOSITY": "NONE", **environment}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **shown}
        )


@pytest.fixture
async def hub(site: Site, tmp_path: Path) -> AsyncIterator[Secured]:
    authority = SiteAuthority(tmp_path / "authority")
    shown = authority.issue("hub", alternatives=["127.0.0.1", "fire.example.com"])
    site.start("hub", "--tls", str(shown.folder), "--allowed-host", "fire.example.com")
    secured = Secured(site, authority, shown)

    async def answers() -> bool:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await secured.zones(shown.client(shown=False))
            return True
        return False

    await eventually(answers, goal="the hub answers over TLS")
    yield secured
    assert site.running("hub"), site.log("hub")
    assert "Traceback" not in site.log("hub"), site.log("hub")


async def test_people_and_programs_are_answered_only_over_tls(hub: Secured, tmp_path: Path) -> None:
    answer = await asyncio.to_thread(hub.ask, "/v1/zones", "fire.example.com")
    assert (answer.status, json.load(answer)["zones"]) == (200, [])
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    local = await asyncio.to_thread(hub.ask, "/v1/zones", "localhost")
    assert (local.status, local.headers["Strict-Transport-Security"]) == (200, None)

    with pytest.raises((OSError, http.client.HTTPException)):
        await asyncio.to_thread(hub.site.read, "/v1/zones")
    with pytest.raises(grpc.aio.AioRpcError):
        await hub.zones(None)
    stranger = SiteAuthority(tmp_path / "stranger").issue("x")
    with pytest.raises(grpc.aio.AioRpcError):
        await hub.zones(stranger.client(shown=False))


async def test_the_console_signs_in_and_follows_alarms_over_tls(hub: Secured) -> None:
    context = trusting(hub.shown.ca)
    origin = f"https://{HOST}:{hub.port}"
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(origin, cookie_jar=jar, connector=aiohttp.TCPConnector(ssl=context)) as browser:
        assert (await browser.get("/", allow_redirects=False)).status == 303
        answer = await browser.post("/v1/session", json={"token": TOKEN}, headers={"Origin": origin})
        assert answer.status == 200
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(f"__Host-embereye_{hub.port}=")
        assert "Secure" in cookie
        assert (await browser.get("/")).status == 200
        async with browser.ws_connect("/v1/alarms/ws", origin=origin) as socket_:
            await asyncio.sleep(0.5)
            assert not socket_.closed


async def test_commands_use_tls_if_an_authority_is_given(hub: Secured) -> None:
    listed = await asyncio.to_thread(hub.command, "access", "list", EMBEREYE_HUB_CA=str(hub.shown.ca))
    assert (listed.returncode, "admin" in listed.stdout) == (0, True), listed.stderr
    # The certificate itself may be its authority, as in a Secret without one.
    by_name = await asyncio.to_thread(
        hub.command, "alarms", "--ca", str(hub.shown.folder / "tls.crt"), "--server-name", "fire.example.com", "list"
    )
    assert by_name.returncode == 0, by_name.stderr
    plain = await asyncio.to_thread(hub.command, "access", "list")
    assert plain.returncode != 0
    wrong = await asyncio.to_thread(hub.command, "access", "list", EMBEREYE_HUB_CA="/nowhere")
    assert (wrong.returncode, "/nowhere" in wrong.stderr) == (2, True), wrong.stderr


async def test_commands_that_read_pages_trust_the_same_authority(hub: Secured) -> None:
    page, at = ("report", "quality"), {"EMBEREYE_CONSOLE": f"https://{HOST}:{hub.port}"}
    trusted = await asyncio.to_thread(hub.command, *page, EMBEREYE_HUB_CA=str(hub.shown.ca), **at)
    assert trusted.returncode == 0, trusted.stderr
    words = ("--ca", str(hub.shown.folder / "tls.crt"), "--server-name", "fire.example.com")
    by_name = await asyncio.to_thread(hub.command, *page, *words, **at)
    assert by_name.returncode == 0, by_name.stderr
    strange = await asyncio.to_thread(hub.command, *page, **at)
    assert (strange.returncode, "Name the authority that signed it with --ca" in strange.stderr) == (3, True)
    misnamed = await asyncio.to_thread(hub.command, *page, *words[:3], "other.example.com", **at)
    assert (misnamed.returncode, "its certificate has another name" in misnamed.stderr) == (3, True), misnamed.stderr


async def test_a_new_certificate_is_used_while_feeds_continue(hub: Secured) -> None:
    context = trusting(hub.shown.ca)

    def shown() -> set[str]:
        with (
            socket.create_connection((HOST, hub.port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secured,
        ):
            certificate = secured.getpeercert()
            assert certificate
            return {str(name[1]) for name in certificate["subjectAltName"]}

    url = f"https://{HOST}:{hub.port}/v1/alarms/ws"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, ssl=context, headers=headers) as feed,
        dial(hub.site.hub, hub.shown.client(shown=False), token=TOKEN) as link,
    ):
        for name in ("second.example", "third.example"):
            hub.authority.issue("hub", alternatives=["127.0.0.1", name], life=timedelta(hours=1))

            async def renewed(name: str = name) -> bool:
                return name in await asyncio.to_thread(shown)

            await eventually(renewed, goal=f"{name} is shown")
        assert not feed.closed
        await feed.ping()
        await AlarmsStub(link).Zones(ZonesRequest(), timeout=20)
    await hub.zones(hub.shown.client(shown=False))


async def test_endless_handshakes_and_garbage_lock_nobody_out(hub: Secured) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((HOST, hub.port))) for _ in range(300)]
        for number, connection in enumerate(idle):
            with contextlib.suppress(OSError):
                connection.sendall((b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 3000)[number % 3])
        answer = await asyncio.to_thread(hub.ask, "/v1/zones")
        assert answer.status == 200
        await asyncio.sleep(10.5)
        for connection in idle[::3]:
            connection.settimeout(20)
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100) == b"", "an endless handshake is aborted"


async def test_endless_handshakes_leave_the_hub_its_descriptors(hub: Secured) -> None:
    hub.site.end("hub")
    hub.site.prefix = ["prlimit", "--nofile=1024:1024"]
    hub.site.start("hub", "--tls", str(hub.shown.folder))
    hub.site.assign("shard-0", "one")
    hub.site.start("shard-0")
    with contextlib.ExitStack() as stack:
        for number in range(1100):
            if number % 100 == 0:
                await asyncio.sleep(0.02)
            for _ in range(600):  # the hub may not listen yet
                try:
                    connection = stack.enter_context(socket.create_connection((HOST, hub.port)))
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.1)
            if number % 2:
                with contextlib.suppress(OSError):
                    connection.sendall(b"\x16\x03\x01")
        honest = hub.site.speaker("shard-0", "one")
        answer = await asyncio.to_thread(hub.ask, "/v1/devices", source="127.0.0.2")
        assert answer.status == 200
        await asyncio.sleep(2)
        honest.line = SMOKE

        async def alarmed() -> bool:
            listed = json.load(await asyncio.to_thread(hub.ask, "/v1/zones", source="127.0.0.2"))["zones"]
            return any(zone["name"] == "one" and zone["state"] == "ZONE_STATE_ALARM" for zone in listed)

        await eventually(alarmed, goal="an honest device's alarm is shown", seconds=ALARM_SECONDS)
