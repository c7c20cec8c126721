"""`embereye walktest` against a hub as a real process."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.hubs import HubProcess
from harness.stored import Stored

from embereye.v1.roster_pb2 import FleetRoster
from embereye.v1.roster_pb2_grpc import RosterStub
from embereye.v1.types_pb2 import Device


async def embereye(*words: str) -> tuple[int, str]:
    """Run a command; its exit code and what it printed."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await command.communicate()
    return command.returncode or 0, output.decode()


@pytest.mark.slow
async def test_a_walk_test_is_started_ended_shown_and_verified(
    tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    hub = make_hub(Stored(tmp_path), "--walktest-every", "90d", "--site", "mill")
    hub.start()
    await hub.ready()
    roster = FleetRoster(
        fleet="default/sensors/all", epoch=1, deadline_ns=5_000_000_000, devices=[Device(id="a", zone="hall")]
    )
    async with hub.channel(hub.control) as link:
        await RosterStub(link).Set(roster, wait_for_ready=True, timeout=60)
    at = ("--console", f"http://127.0.0.1:{hub.http_port}", "--token", hub.token)
    code, text = await embereye("walktest", "start", "hall", "--who", "Ada", *at)
    assert (code, text) == (0, "hall: under test. Trigger 1 devices: a.\n"), text
    code, text = await embereye("walktest", "start", "default/hall", *at)
    assert (code, "runs already, by Ada" in text) == (4, True), text
    code, text = await embereye("walktest", "status", *at)
    assert (code, "default/hall: 0 of 1 devices triggered" in text) == (0, True), text
    file = tmp_path / "report.json"
    code, text = await embereye("walktest", "end", "hall", "--out", str(file), *at)
    assert (code, "Not complete: 1 of 1 devices were not triggered." in text) == (1, True), text
    _, key = await embereye("statement", "key", *at)
    code, text = await embereye("walktest", "verify", str(file), "--key", key.strip())
    assert (code, ": valid. default/hall" in text) == (0, True), text
    report = json.loads(file.read_bytes())["statement"]["walktest"]
    pages = tmp_path / "report.pdf"
    code, text = await embereye("walktest", "show", report, "--out", str(pages), *at)
    assert (code, pages.read_bytes()[:5]) == (0, b"%PDF-"), text
    code, text = await embereye("walktest", "verify", str(pages), "--key", key.strip())
    assert (code, ": valid. default/hall" in text, "NOT TRIGGERED" in text) == (0, True, True), text
    code, text = await embereye("walktest", "verify", str(pages), "--key", "0" * 64)
    assert (code, "is signed by another key" in text) == (1, True), text
    file.write_bytes(file.read_bytes().replace(b'"complete":false', b'"complete":true'))
    code, text = await embereye("walktest", "verify", str(file), "--key", key.strip())
    assert (code, "the signature does not match" in text) == (1, True), text
    code, text = await embereye("walktest", "show", "0" * 16, *at)
    assert (code, "there is no report of a walk test" in text) == (5, True), text
