"""The hub is killed during an escalation: no step is skipped, and doubles are bounded."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.stored import Stored

from embereye.addons.notify.messages import EARLIER

from .servers import MailServer, text_of
from .test_process import ignite

ZONES = [f"zone-{number}" for number in range(20)]
STEPS = ("guard", "chief", "owner")
CONFIG = """
fold: 0s
routes: [{routes}]
escalations:
  - name: fire
    for: alarm
    followUp: false
    steps: [{steps}]
"""


def write(folder: Path, mail: MailServer, seconds: int) -> Path:
    """Write a notify.yaml whose steps mail to different people."""
    routes = ", ".join(
        f'{{name: {name}, allow: 127.0.0.0/8, url: "{mail.url.replace("guard@", f"{name}@")}"}}' for name in STEPS
    )
    steps = ", ".join(f"{{after: {number * seconds}s, routes: {name}}}" for number, name in enumerate(STEPS))
    file = folder / "notify.yaml"
    file.write_text(CONFIG.format(routes=routes, steps=steps))
    return file


def reported(mail: MailServer) -> Counter[tuple[str, str]]:
    """Count the messages to each person that have a zone as news."""
    counts = Counter[tuple[str, str]]()
    for message in mail.received:
        lines = [line for line in text_of(message).splitlines() if EARLIER not in line]
        zones = set(re.findall(r"default/(zone-\d+)", "\n".join(lines)))
        counts.update((str(message["to"]).partition("@")[0].lstrip("<"), zone) for zone in zones)
    return counts


@pytest.mark.parametrize(
    "kills", [1, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])], ids="{} kills".format
)
async def test_no_step_is_skipped_when_the_hub_is_killed(
    tmp_path: Path, mail: MailServer, make_hub: Callable[..., HubProcess], kills: int
) -> None:
    moments = random.Random(kills)
    hub = make_hub(Stored(tmp_path), "--notify", str(write(tmp_path, mail, seconds=max(1, kills // 2))))
    hub.start()
    await hub.ready()
    await ignite(hub, *ZONES)
    for _ in range(kills):
        await asyncio.sleep(moments.uniform(0.0, 1.0))
        hub.kill()
        hub.start()
        await hub.ready()
    wanted = {(name, zone) for name in STEPS for zone in ZONES}
    await eventually(lambda: reported(mail).keys() >= wanted, 120)
    counts = reported(mail)
    assert counts.keys() == wanted
    assert max(counts.values()) <= 1 + kills, "each kill repeats at most the message that was under way, once per route"
