"""`embereye incident export` against a hub: one file that needs nothing else."""

import asyncio
import hashlib
import json
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from harness.hubs import HubProcess
from harness.in_process import sign
from harness.stored import Stored

from embereye.addons.archive.summary import Attachment, Incident, html, text
from embereye.v1.evidence_pb2 import ReportRequest, ReportResponse, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye_cli.main import main

JPEG = b"\xff\xd8 a picture \xff\xd9"


async def raise_alarm(hub: HubProcess) -> str:
    """Raise an alarm with a picture; returns its id."""
    item = sign(device="s<01>", name="first")
    item.snapshot = JPEG
    async with grpc.aio.insecure_channel(hub.control) as channel:
        call = EvidenceStub(channel).Report()
        await call.write(ReportRequest(hello=ShardHello(fleet="default/sensors/hall", shard="hall-0", epoch=1)))
        await call.write(ReportRequest(evidence=item))
        async with asyncio.timeout(60):
            while isinstance(answer := await call.read(), ReportResponse):
                if "first" in answer.acknowledged:
                    break
    (alarm,) = hub.get("/v1/alarms")["alarms"]
    return str(alarm["alarm"])


def press(hub: HubProcess, action: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{hub.http_port}/v1/zones/default/hall/{action}", b'{"note": "it is <real>"}', method="POST",
        headers={"Authorization": f"Bearer {hub.token}", "Content-Type": "application/json"},
    )  # fmt: skip
    urllib.request.urlopen(request, timeout=20).read()


async def test_one_file_has_pictures_reasons_actions_and_hashes(
    tmp_path: Path, make_hub: Callable[..., HubProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    hub = make_hub(Stored(tmp_path))
    hub.start()
    await hub.ready()
    alarm = await raise_alarm(hub)
    await asyncio.to_thread(press, hub, "acknowledge")
    file = tmp_path / "incident.zip"
    words = ["incident", "export", alarm, "--to", str(file), "--console", f"http://127.0.0.1:{hub.http_port}",
             "--token", hub.token]  # fmt: skip
    assert await asyncio.to_thread(main, words) == 0
    assert "1 picture and clip" in capsys.readouterr().out
    with zipfile.ZipFile(file) as archive:
        folder = f"incident-{alarm}"
        names = {name.removeprefix(f"{folder}/") for name in archive.namelist()}
        assert names == {
            "SHA256SUMS", "alarm.json", "audit.json", "pictures/s_01_-smoke.jpg", "summary.html", "summary.txt",
        }  # fmt: skip
        for line in archive.read(f"{folder}/SHA256SUMS").decode().splitlines():
            digest, name = line.split("  ")
            assert hashlib.sha256(archive.read(f"{folder}/{name}")).hexdigest() == digest
        assert archive.read(f"{folder}/pictures/s_01_-smoke.jpg") == JPEG
        page = archive.read(f"{folder}/summary.html").decode()
        assert '<img src="pictures/s_01_-smoke.jpg"' in page
        assert "s&lt;01&gt;" in page
        assert "<real>" not in page
        summary = archive.read(f"{folder}/summary.txt").decode()
        assert "acknowledged" in summary
        assert "acknowledge default/hall" in summary
        assert json.loads(archive.read(f"{folder}/alarm.json"))["alarm"] == alarm
    assert await asyncio.to_thread(main, words) == 2
    assert "add --force" in capsys.readouterr().err
    assert await asyncio.to_thread(main, [*words, "--force"]) == 0
    words[2] = "0" * 16
    assert await asyncio.to_thread(main, [*words, "--force"]) != 0
    assert "there is no alarm" in capsys.readouterr().err
    assert not list(tmp_path.glob(".incident*"))


def test_a_summary_names_what_is_missing() -> None:
    alarm = {"alarm": "3a55901d2d5fdabd", "namespace": "default", "zone": "hall", "beganNs": "1000000000",
             "endedNs": "0", "worst": "ZONE_STATE_ALARM", "why": "smoke\x1b[31m"}  # fmt: skip
    clip = Attachment("clips/a.mkv", "cam-1", 10**9, "clip", "f" * 64)
    incident = Incident(alarm, ["it began"], [clip], [], ["the audit trail: only an admin's token may read it"], 0)
    assert "NOT INCLUDED\nthe audit trail" in text(incident)
    assert "\x1b" not in text(incident)
    page = html(incident)
    assert "still open" in page
    assert '<a href="clips/a.mkv">clips/a.mkv</a>' in page
    assert "<li>the audit trail" in page
