"""`embereye hub --profiles` as a real process, and the command that begins, confirms and ends permits."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from harness.hubs import HubProcess
from harness.stored import Stored

from embereye.levels import Kind, Level, Sense
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub

FILE = "profiles: [{name: welding, zones: hall, expected: flame, longest: 4h, confirmEvery: 1h}]"


async def embereye(hub: HubProcess, *words: str) -> tuple[int, str]:
    """Run a command against `hub`; its exit code and what it printed."""
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", *words, "--console", f"http://127.0.0.1:{hub.http_port}",
        "--token", hub.token, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await command.communicate()
    return command.returncode or 0, output.decode()


async def open_zone(hub: HubProcess) -> None:
    """Report a weak sign, so that there is a zone."""
    item = EvidenceItem(
        id="1", episode="1", fleet="default/sensors/all", device="s", zone="hall", kind=Kind.HEAT.wire,
        sense=Sense.SENSOR.wire, level=Level.PRE_ALARM.wire, since_ns=10**18, until_ns=10**18,
    )  # fmt: skip

    async with hub.channel(hub.control) as link:
        call = EvidenceStub(link).Report(wait_for_ready=True, timeout=60)
        await call.write(ReportRequest(hello=ShardHello(fleet="default/sensors/all", shard="all-0", epoch=1)))
        await call.write(ReportRequest(evidence=item))
        async for answer in call:
            if "1" in answer.acknowledged:
                break
        call.cancel()


async def test_a_permit_is_begun_listed_confirmed_and_ended(
    tmp_path: Path, make_hub: Callable[..., HubProcess]
) -> None:
    (tmp_path / "profiles.yaml").write_text(FILE)
    hub = make_hub(Stored(tmp_path), "--profiles", str(tmp_path / "profiles.yaml"))
    hub.start()
    await hub.ready()
    await open_zone(hub)
    begin = ("profile", "begin", "hall", "welding", "--for", "2h", "--reason", "permit 17", "--who", "Ada")
    code, text = await embereye(hub, *begin)
    assert (code, text.startswith("hall: welding for 120 min.")) == (0, True), text
    assert (await embereye(hub, "profile", "confirm", "default/hall"))[0] == 0
    code, listed = await embereye(hub, "profile", "list", "--json")
    (permit,) = json.loads(listed)["permits"]
    assert (code, permit["zone"], permit["reason"], permit["who"]) == (0, "hall", "permit 17", "Ada (admin)")
    assert await embereye(hub, "profile", "end", "hall") == (0, "hall: normal.\n")
    code, text = await embereye(hub, "profile", "begin", "cellar", "welding", "--for", "2h", "--reason", "x")
    assert (code, "there is no zone cellar" in text) == (5, True), text
    entries = hub.get("/v1/audit")
    assert {"begin profile", "confirm profile", "end profile"} <= {entry["action"] for entry in entries["entries"]}


async def test_a_hub_without_profiles_says_how_to_get_them(tmp_path: Path, make_hub: Callable[..., HubProcess]) -> None:
    hub = make_hub(Stored(tmp_path))
    hub.start()
    await hub.ready()
    code, text = await embereye(hub, "profile", "list")
    assert code
    assert "This hub has no profiles: start it with --profiles" in text
