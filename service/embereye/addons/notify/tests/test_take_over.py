"""Two hubs on one database: the second one continues the escalations of the first, which is killed."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.hubs import HubProcess
from harness.need import POSTGRES
from harness.stored import Stored

from .servers import MailServer, text_of
from .test_process import ignite

pytestmark = pytest.mark.needs(POSTGRES)
TOKEN = "a-token-of-the-admin-that-replicas-share"
CONFIG = """
fold: 0s
routes: [{guard}, {chief}]
escalations:
  - {{name: fire, for: alarm, followUp: false, steps: [{{routes: guard}}, {{after: 4s, routes: chief}}]}}
"""


def declare(folder: Path, mail: MailServer) -> Path:
    """Write a notify.yaml with two steps, whose messages say which hub sent them."""
    urls = {
        name: f"{{name: {name}, timeout: 60s, allow: 127.0.0.0/8, "
        f'url: "{mail.url.replace("guard@", f"{name}@").replace("hub@", f"{folder.name}@")}"}}'
        for name in ("guard", "chief")
    }
    file = folder / "notify.yaml"
    file.write_text(CONFIG.format(**urls))
    return file


def books(mail: MailServer) -> list[tuple[str, str, str]]:
    """For each message in turn: the hub, the person, and the zone."""
    entries = []
    for message in list(mail.received):
        hub, person = (str(message[name]).rpartition("<")[2].partition("@")[0] for name in ("from", "to"))
        entries += [(hub, person, zone) for zone in re.findall(r"default/(\w+): heat", text_of(message))]
    return entries


async def test_the_hub_that_takes_over_continues_the_escalation_and_resumes_the_sender(
    tmp_path: Path, mail: MailServer, stored_in_postgres: Stored, make_hub: Callable[..., HubProcess]
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    hubs = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "admin-token").write_text(TOKEN)
        stored = Stored(folder, stored_in_postgres.address, stored_in_postgres.server)
        shared = ("--advertise", "127.0.0.1", "--admin-token-file", str(tmp_path / "token"))
        hubs.append(make_hub(stored, *shared, "--notify", str(declare(folder, mail))))
        hubs[-1].start()
        await hubs[-1].ready()
    first, second = hubs
    await ignite(first, "attic")
    await eventually(lambda: ("first", "chief", "attic") in books(mail))
    mail.is_silent = True
    await ignite(first, "hall")  # its message to the guard is with the service, which does not answer
    await eventually(lambda: mail.unanswered)
    await asyncio.to_thread(first.kill)
    mail.is_silent = False
    wanted = {(person, zone) for person in ("guard", "chief") for zone in ("attic", "hall")}
    await eventually(lambda: {entry[1:] for entry in books(mail)} >= wanted)
    await eventually(lambda: "hub ready:" in second.log())
    await eventually(lambda: all(route["waiting"] == 0 for route in second.get("/v1/notify")["routes"]))
    entries = books(mail)
    assert [hub for hub, _, zone in entries if zone == "attic"] == ["first", "first"], "recorded steps are not repeated"
    assert [entry for entry in entries if entry[2] == "hall"] == [
        ("second", "guard", "hall"), ("second", "chief", "hall"),
    ]  # fmt: skip
