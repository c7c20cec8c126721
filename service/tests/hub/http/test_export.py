"""A span of time as one ZIP file."""

import asyncio
import io
import json
import time
import zipfile
from collections.abc import AsyncIterator

import pytest
from harness.eventually import eventually

from embereye.units import DAY, SECOND

from .served import Served


async def test_events_of_the_span_are_exported(served: Served) -> None:
    began = time.time_ns()
    await served.alarm()
    address = f"{served.base}/v1/timeline/export.zip?from={began - SECOND}&until={began + 600 * SECOND}"
    async with served.session.get(address) as response:
        assert response.content_type == "application/zip"
        archive = zipfile.ZipFile(io.BytesIO(await response.read()))
    assert archive.testzip() is None
    (event,) = map(json.loads, archive.read("events.jsonl").splitlines())
    assert (event["zone"], event["state"]) == ("hall", "ZONE_STATE_ALARM")
    assert archive.read("SHA256SUMS") == b""


@pytest.mark.parametrize("span", [(5, 5), (9, 5), (2**63 - 1, 2**63 - 1)])
async def test_a_span_without_length_is_empty(served: Served, span: tuple[int, int]) -> None:
    await served.alarm()
    async with served.session.get(f"{served.base}/v1/timeline/export.zip?from={span[0]}&until={span[1]}") as response:
        assert zipfile.ZipFile(io.BytesIO(await response.read())).read("events.jsonl") == b""


async def test_an_export_has_at_most_the_last_day_of_its_span(served: Served) -> None:
    await served.alarm()
    async with served.session.get(f"{served.base}/v1/timeline/export.zip?until={time.time_ns() + 2 * DAY}") as response:
        assert zipfile.ZipFile(io.BytesIO(await response.read())).read("events.jsonl") == b""


async def test_a_client_that_leaves_during_an_export_causes_no_error(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await served.alarm()
    left, ended = asyncio.Event(), asyncio.Event()

    async def pieces(*arguments: object) -> AsyncIterator[bytes]:
        try:
            yield b"PK"
            await left.wait()
            for _ in range(100):
                yield bytes(65536)
                await asyncio.sleep(0)
        finally:
            ended.set()

    monkeypatch.setattr("embereye.hub.http.export.ExportRoutes._pieces", pieces)
    response = await served.session.get(f"{served.base}/v1/timeline/export.zip")
    response.close()
    await asyncio.sleep(0)
    left.set()
    await eventually(ended.is_set)
    async with served.session.get(f"{served.base}/v1/timeline/export.zip?from=5&until=5") as again:
        assert again.status == 200, "the next export does not wait for it"
    assert [entry.getMessage() for entry in caplog.records if entry.levelname == "ERROR"] == []
