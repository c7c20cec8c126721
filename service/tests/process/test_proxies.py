"""EmberEye's own processes are dialled directly, without proxies of the environment."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from embereye.process.grpc_server import GrpcServer, channel, control_channel
from embereye.process.identity.authority import Authority, utc_now
from embereye.process.identity.credentials import Credentials
from embereye.process.identity.names import Identity, Role
from embereye.process.tls.client import ClientTls, dial

HUB = Identity(Role.HUB, "default", "hub")
VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture
async def asked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[bytes]]:
    """The requests that the proxy in the environment received."""
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    for name in VARIABLES:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with proxy:
        yield asked


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    for name, content in Authority.create(utc_now()).issue(HUB, utc_now()).files.items():
        (tmp_path / name).write_bytes(content)
    return Credentials(tmp_path)


def plain(target: str, _: Path) -> grpc.aio.Channel:
    return channel(target)


def control(target: str, folder: Path) -> grpc.aio.Channel:
    return control_channel(target, HUB.server_name, Credentials(folder))


def tls(target: str, folder: Path) -> grpc.aio.Channel:
    return dial(target, ClientTls.in_folder(folder), server_name=HUB.server_name)


@pytest.mark.parametrize("make", [plain, control, tls])
async def test_a_channel_goes_through_no_proxy_of_the_environment(
    make: Callable[[str, Path], grpc.aio.Channel], asked: list[bytes], credentials: Credentials, tmp_path: Path
) -> None:
    server = GrpcServer([], control=True, credentials=None if make is plain else credentials)
    target = f"127.0.0.1:{server.listen('127.0.0.1:0')}"
    await server.start()
    await server.set_serving(True)
    try:
        async with make(target, tmp_path) as link:
            answer = await HealthStub(link).Check(HealthCheckRequest(), timeout=10)
    finally:
        await server.stop()
    assert answer.status == HealthCheckResponse.SERVING
    assert asked == []
