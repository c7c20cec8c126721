"""Messages that are not protobuf, and questions for the services of a port."""

import asyncio
from typing import Any

import grpc
import pytest

from embereye.hub.services.reports import ReportServicer
from embereye.process.grpc_server import GrpcServer, Service, channel
from embereye.process.malformed import refused
from embereye.v1.clips_pb2 import Clip, HeldResponse
from embereye.v1.clips_pb2_grpc import ClipsServicer, ClipsStub, add_ClipsServicer_to_server
from embereye.v1.evidence_pb2 import ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import add_EvidenceServicer_to_server

BROKEN = b"\x0a\xff\xff\xff\xff\x7f"  # a field that is longer than its message


class AnyClips(ClipsServicer):
    async def Held(self, request: Clip, context: Any) -> HeldResponse:
        return HeldResponse(bytes=1)


async def raw_status(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(20):
            await call
    return caught.value.code()


async def test_malformed_messages_are_refused_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Reports(ReportServicer):
        failing = ""

    servicer: Any = AnyClips
    servicer = servicer()  # without its other calls
    server = GrpcServer(
        [
            Service(add_EvidenceServicer_to_server, Reports(), "embereye.v1.Evidence"),
            Service(add_ClipsServicer_to_server, servicer, "embereye.v1.Clips"),
        ],
        control=True,
    )
    port = server.listen("127.0.0.1:0")
    await server.start()
    before, hello = refused.count, ReportRequest(hello=ShardHello(shard="s")).SerializeToString()
    async with channel(f"127.0.0.1:{port}") as opened:
        link: Any = opened  # without types: the messages are bytes
        for _ in range(5):
            for name in ("/embereye.v1.Clips/Held", "/grpc.health.v1.Health/Check"):
                assert await raw_status(link.unary_unary(name)(BROKEN)) is grpc.StatusCode.INVALID_ARGUMENT
            for messages in ([BROKEN], [hello, BROKEN]):
                call = link.stream_stream("/embereye.v1.Evidence/Report")(iter(messages))
                assert await raw_status(_read_all(call)) is grpc.StatusCode.INVALID_ARGUMENT
        assert (await ClipsStub(opened).Held(Clip(), timeout=10)).bytes == 1
    await server.stop()
    assert refused.count - before == 20
    assert "Traceback" not in caplog.text
    assert len([record for record in caplog.records if "not valid protobuf" in record.getMessage()]) == 1


async def _read_all(call: Any) -> None:
    async for _ in call:
        pass


async def test_no_port_lists_its_services_to_strangers() -> None:
    server = GrpcServer([], control=False)
    port = server.listen("127.0.0.1:0")
    await server.start()
    async with channel(f"127.0.0.1:{port}") as opened:
        link: Any = opened  # without types: the messages are bytes
        for version in ("v1", "v1alpha"):
            call = link.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")(iter([b""]))
            assert await raw_status(_read_all(call)) is grpc.StatusCode.UNIMPLEMENTED
    await server.stop()
