"""A span of time as one ZIP file."""

import io
import json
import time
import zipfile

import pytest

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


@pytest.mark.parametrize("span", [(5, 5), (9, 5), (1, 2 * DAY)])
async def test_an_impossible_span_is_refused(served: Served, span: tuple[int, int]) -> None:
    status, body = await served.get(f"/v1/timeline/export.zip?from={span[0]}&until={span[1]}")
    assert status == 400
    assert "until" in body["error"]
