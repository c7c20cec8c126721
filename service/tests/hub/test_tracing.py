"""An alarm's trace, from a device's bytes to the published event, at a collector that speaks OTLP over gRPC.

The collector is the service of `opentelemetry-proto` in this process, so that any OTLP collector gets the same calls.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from harness.eventually import eventually
from harness.settings import sensor_settings

from embereye.process.telemetry.tracing import ENDPOINT_VARIABLE, open_tracer
from embereye.sensor.shard import SensorShard
from embereye.v1.shard_pb2 import Assignment
from embereye.v1.types_pb2 import Device

from .shards import shard_process

if TYPE_CHECKING:
    from harness.hubs import HubProcess


class Collector:
    """Spans by name, each with the service that sent it."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

        self.spans: list[tuple[str, Any]] = []
        spans = self.spans

        class Traces(service.TraceServiceServicer):
            def Export(self, request: Any, context: object) -> Any:
                for resource in request.resource_spans:
                    attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        spans.extend((attributes["service.name"], span) for span in scope.spans)
                return messages.ExportTraceServiceResponse()

        self.server = grpc.server(ThreadPoolExecutor(2))
        service.add_TraceServiceServicer_to_server(Traces(), self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()


WATCHED = Assignment(
    fleet="site/sensors/hall",
    shard="hall-0",
    epoch=1,
    devices=[Device(id="s-1", zone="hall")],
    sensor=sensor_settings(),
)


async def test_an_alarm_is_one_trace_from_a_devices_bytes_to_the_published_event(
    hub_process: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    monkeypatch.setenv(ENDPOINT_VARIABLE, f"http://127.0.0.1:{collector.port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # ms between two exports
    hub_process.start()
    await hub_process.ready()
    async with shard_process(SensorShard(), hub_process, tmp_path, WATCHED) as shard:
        _, writer = await asyncio.open_connection("127.0.0.1", shard.tcp_port)
        writer.write(b"#serialno:s-1!\r\n#Sensor:ADC1=0!\r\n")
        await asyncio.sleep(0.2)
        assert collector.spans == []  # quiet lines are not traced
        for _ in range(30):
            writer.write(b"#Sensor:ADC1=4095!\r\n")  # for 3 s: repeated reports of one level
            await asyncio.sleep(0.1)
        await eventually(lambda: len(collector.spans) >= 5, goal="five spans")
        writer.close()
    spans = {span.name: span for _, span in collector.spans}
    assert len(collector.spans) == 5
    assert len({span.trace_id for span in spans.values()}) == 1
    chain = ["receive", "analyse", "report", "commit", "publish"]
    assert spans["receive"].parent_span_id == b""
    for parent, child in itertools.pairwise(chain):
        assert spans[child].parent_span_id == spans[parent].span_id
    services = {span.name: service for service, span in collector.spans}
    assert [services[name] for name in chain] == ["embereye-shard"] * 3 + ["embereye-hub"] * 2
    starts = [spans[name].start_time_unix_nano for name in chain]
    assert starts == sorted(starts)
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in spans.values())
    assert (
        spans["report"].end_time_unix_nano >= spans["publish"].end_time_unix_nano
    )  # the report ends when it is acknowledged
    attributes = {pair.key: pair.value.string_value for pair in spans["analyse"].attributes}
    assert (attributes["embereye.device"], attributes["embereye.zone"], attributes["embereye.kind"]) == (
        "s-1",
        "hall",
        "smoke",
    )
    collector.server.stop(0)


async def test_an_unreachable_collector_delays_neither_alarms_nor_the_exit(
    hub_process: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:  # bound, but not listening
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv(ENDPOINT_VARIABLE, f"http://127.0.0.1:{closed.getsockname()[1]}")
        hub_process.start()
        await hub_process.ready()
        async with shard_process(SensorShard(), hub_process, tmp_path, WATCHED) as shard:
            _, writer = await asyncio.open_connection("127.0.0.1", shard.tcp_port)
            writer.write(b"#serialno:s-1!\r\n#Sensor:ADC1=4095!\r\n")

            def alarmed() -> bool:
                zones: Any = hub_process.get("/v1/zones")
                return any(zone.get("alarm") for zone in zones["zones"])

            await eventually(alarmed, goal="an alarm")
            writer.close()
        assert hub_process.terminate() == 0


def test_tracing_and_its_library_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    assert open_tracer("embereye-shard") is None
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]


def test_a_missing_optional_package_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:4317")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert open_tracer("embereye-shard") is None
    assert "install embereye[otel]" in caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
    ],
)
def test_an_invalid_opentelemetry_variable_only_disables_tracing(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:4317")
    monkeypatch.setenv(variable, value)
    assert open_tracer("embereye-shard") is None
    assert f"{ENDPOINT_VARIABLE} is set, but alarms are not traced: " in caplog.text
