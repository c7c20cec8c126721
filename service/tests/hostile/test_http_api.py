"""Everything that the hub's description allows, and much that it does not, sent to a real hub by schemathesis."""

import asyncio
import subprocess
import sys

from .site import SMOKE, TOKEN, Site

EXAMPLES = 15  # of each operation and phase: bounded, so that it takes seconds
RUN_SECONDS = 150
# Names that there are, or every path with a name in it would end at 404.
SETTINGS = """
[parameters]
namespace = "default"
zone = "s-02"
fleet = "hall"
device = "s-02"

[[operations]]
include-path-regex = "^/v1/devices/"
parameters = {kind = "sensors"}
"""
# `ignored_auth` has no 429, which who guesses gets; test_openapi.py asks every path without a token. What a WebSocket
# is told without an upgrade stands there, too.
OPTIONS = ["--exclude-checks", "ignored_auth", "--exclude-path", "/v1/alarms/ws"]


async def test_generated_requests_find_no_fault_in_the_http_api_and_delay_no_alarm(site: Site) -> None:
    site.start("hub")
    site.start("hall-0")
    site.assign("hall-0", "s-01", "s-02")
    honest, other = (site.speaker("hall-0", name) for name in ("s-01", "s-02"))
    await site.covered(["s-01", "s-02"])
    other.line = SMOKE
    await site.alarmed("s-02")
    settings = site.folder / "schemathesis.toml"
    settings.write_text(SETTINGS)
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run", site.url("/v1/openapi.json"),
        "--header", f"Authorization: Bearer {TOKEN}", "--max-examples", str(EXAMPLES), "--generation-deterministic",
        "--request-timeout", "10", "--no-color", *OPTIONS,
    ]  # fmt: skip
    attack = asyncio.create_task(
        asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=RUN_SECONDS, cwd=site.folder, check=False
        )
    )
    await asyncio.sleep(1)
    honest.line = SMOKE
    await site.alarmed("s-01")
    found = await attack
    assert found.returncode == 0, found.stdout[-10_000:] + found.stderr[-2_000:]
    assert site.running("hub")
    assert "Traceback" not in site.log("hub")
