"""`embereye hub --notify` as a real process, and the command that asks it."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.stored import Stored

from embereye.levels import Kind, Level, Sense
from embereye.process.grpc_server import PEOPLE
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye.v1.types_pb2 import Term

from .servers import MailServer


async def ignite(hub: HubProcess, *zones: str) -> None:
    """Report a fire in each of `zones`, and wait until the hub has stored them."""
    now = time.time_ns()

    async def requests():
        yield ReportRequest(hello=ShardHello(fleet="default/sensors/all", shard="all-0", epoch=1), sent_ns=now)
        for zone in zones:
            item = EvidenceItem(
                id=f"{zone}-1", episode=zone, fleet="default/sensors/all", device=f"s-{zone}", zone=zone,
                kind=Kind.HEAT.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, score=1, since_ns=now,
                until_ns=now, why=[Term(name="temperature.max", value=61.3, threshold=57, unit="°C")],
            )  # fmt: skip
            yield ReportRequest(evidence=item, sent_ns=now)
        await asyncio.sleep(60)

    acknowledged = set[str]()
    async with hub.channel(hub.control) as link:
        async for answer in EvidenceStub(link).Report(requests(), wait_for_ready=True, timeout=60):
            acknowledged |= set(answer.acknowledged)
            if acknowledged >= {f"{zone}-1" for zone in zones}:
                return


async def embereye(hub: HubProcess, *words: str) -> tuple[int, str]:
    """Run a command against `hub`; its exit code and what it printed."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", *words, "--console", f"http://127.0.0.1:{hub.http_port}",
        "--token", hub.token, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await command.communicate()
    return command.returncode or 0, output.decode()


def declare(folder: Path, url: str, more: str = "") -> Path:
    """Write a notify.yaml with one route, whose address is in another file."""
    (folder / "mail").write_text(f"{url}\n")
    file = folder / "notify.yaml"
    file.write_text(f"routes: [{{name: mail, urlFile: mail, allow: 127.0.0.0/8}}]\n{more}")
    return file


async def test_a_hub_mails_an_alarm_and_its_route_can_be_tested(
    tmp_path: Path, mail: MailServer, make_hub: Callable[..., HubProcess]
) -> None:
    hub = make_hub(Stored(tmp_path), "--notify", str(declare(tmp_path, mail.url)))
    hub.start()
    await hub.ready()
    assert await embereye(hub, "notify", "test", "mail") == (
        0, "Accepted: the service took the message. Look whether it arrived.\n",
    )  # fmt: skip
    await ignite(hub, "hall")
    await eventually(lambda: len(mail.received) == 2)
    assert mail.subjects() == ["EmberEye: test message", "ALARM: default/hall"]
    async with hub.channel(hub.control) as link:
        answer = await HealthStub(link).Check(HealthCheckRequest(service=PEOPLE), timeout=60)
    assert answer.status == HealthCheckResponse.SERVING
    code, listed = await embereye(hub, "notify", "list")
    assert (code, "delivers" in listed) == (0, True)
    code, why = await embereye(hub, "notify", "test", "fax")
    assert (code, why.startswith('embereye: no route "fax" is declared. There are mail.')) == (5, True), why


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("routes: []", "line 1: routes: it is empty, so nobody is notified. Declare at least one route."),
        ("routes: [{name: x, url: 'tgram://'}]", "routes: x: its tgram:// address is not one that Apprise can use"),
        ("routes: [{name: x, url: 'fax://secret-number'}]", "routes: x: its fax:// address is not one that Apprise"),
    ],
)
async def test_a_hub_does_not_start_with_a_wrong_file(
    tmp_path: Path, make_hub: Callable[..., HubProcess], content: str, sentence: str
) -> None:
    file = tmp_path / "notify.yaml"
    file.write_text(content)
    hub = make_hub(Stored(tmp_path), "--notify", str(file))
    hub.start()
    assert hub.process is not None
    await asyncio.to_thread(hub.process.wait, 60)
    assert hub.process.returncode == 2
    assert sentence in hub.log()
    assert "secret" not in hub.log()
