"""The `embereye alarms` command against a real hub."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.hubs import few_hubs

from embereye.levels import Kind, Level, Sense, ZoneState
from embereye.process.lifecycle import UserError
from embereye.v1.alarms_pb2 import Fault, Zone
from embereye.v1.evidence_pb2 import EvidenceItem, ReportRequest, ShardHello
from embereye.v1.evidence_pb2_grpc import EvidenceStub
from embereye_cli.hub.alarms import zone_row
from embereye_cli.hub.token import token_for

if TYPE_CHECKING:
    from harness.hubs import HubProcess

pytest_generate_tests = few_hubs


def environment(hub: HubProcess) -> dict[str, str]:
    return {**os.environ, "EMBEREYE_TOKEN": hub.token}


async def command(
    hub: HubProcess, *arguments: str, words: str = "alarms", **options: Any
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", words, "--hub", hub.grpc, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, **{"env": environment(hub), **options},
    )  # fmt: skip


async def output(
    hub: HubProcess, *arguments: str, words: str = "alarms", **options: Any
) -> tuple[int | None, str, str]:
    process = await command(hub, *arguments, words=words, **options)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


async def report(hub: HubProcess, name: str, device: str) -> None:
    now = time.time_ns()
    item = EvidenceItem(
        id=name, episode=device, fleet="default/sensors/hall", device=device, zone="hall\x1b[2J",
        kind=Kind.SMOKE.wire, sense=Sense.SENSOR.wire, level=Level.ALARM.wire, since_ns=now, until_ns=now,
    )  # fmt: skip
    async with hub.channel(hub.control) as link:
        call = EvidenceStub(link).Report(wait_for_ready=True, timeout=20)
        await call.write(ReportRequest(hello=ShardHello(fleet=item.fleet, shard="hall-0")))
        await call.write(ReportRequest(evidence=item))
        async for response in call:
            if name in response.acknowledged:
                break
        call.cancel()


async def test_watch_shows_every_event_once_over_a_restart_of_the_hub(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "e1", "s-1")
    watching = await command(hub_process, "--json", "watch", "--cursor", "0")
    assert watching.stdout is not None
    assert watching.stderr is not None
    seen = [json.loads(await asyncio.wait_for(watching.stdout.readline(), 60))]
    hub_process.kill()
    assert b"may be out of date" in await asyncio.wait_for(watching.stderr.readline(), 60)
    hub_process.start()
    await hub_process.ready()
    for number in (2, 3):
        await report(hub_process, f"e{number}", f"s-{number}")
        seen.append(json.loads(await asyncio.wait_for(watching.stdout.readline(), 60)))
    watching.terminate()
    assert await asyncio.wait_for(watching.wait(), 30) == 0
    assert [event["cursor"] for event in seen] == ["1", "2", "3"]


async def test_watch_continues_with_the_new_token_from_its_file(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    file = hub_process.data / "admin-token"
    await report(hub_process, "e1", "s-1")
    watching = await command(hub_process, "--json", "--token", f"@{file}", "watch", "--cursor", "0")
    assert watching.stdout is not None
    assert watching.stderr is not None
    assert json.loads(await asyncio.wait_for(watching.stdout.readline(), 60))["cursor"] == "1"
    before = hub_process.log().count("the admin's token was changed")
    file.write_text("another-token-that-was-made-0123456789abcdef\n")
    while hub_process.log().count("the admin's token was changed") == before:
        await asyncio.sleep(0.05)
    assert b"may be out of date" in await asyncio.wait_for(watching.stderr.readline(), 60)
    assert b"the hub is back" in await asyncio.wait_for(watching.stderr.readline(), 60)
    await report(hub_process, "e2", "s-2")
    assert json.loads(await asyncio.wait_for(watching.stdout.readline(), 60))["cursor"] == "2"
    watching.terminate()
    assert await asyncio.wait_for(watching.wait(), 30) == 0


async def test_zones_are_listed_acknowledged_and_reset_by_the_command(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    assert "No matching events in the retained history." in (await output(hub_process, "history"))[1]
    assert await output(hub_process, "history", "--json") == (0, "", "")
    await report(hub_process, "e1", "s-1")
    zone = "hall\x1b[2J"
    code, out, _ = await output(hub_process, "list")
    assert code == 0
    assert "ALARM" in out
    assert "\x1b[2J" not in out, "a zone's name must not steer the terminal"
    code, _, err = await output(hub_process, "reset", zone)
    assert code == 4
    assert "acknowledge it before you reset it" in err
    assert "\x1b" not in err
    code, out, _ = await output(hub_process, "--json", "ack", zone, "--who", "Ada")
    assert json.loads(out)["who"] == "Ada (admin)"
    code, _, err = await output(hub_process, "ack", "attic")
    assert (code, "there is no zone attic" in err) == (5, True)
    hub_process.kill()
    code, _, err = await output(hub_process, "list")
    assert (code, "connection refused. Is it running?" in err) == (3, True)


async def test_the_id_of_a_silence_can_be_copied_on_a_narrow_terminal(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "e1", "s-1")
    zone, why = "hall\x1b[2J", "the kitchen is being painted, and the painters warm their varnish over a flame"
    code, _, err = await output(hub_process, "silence", zone, "--for", "15m", "--reason", why)
    assert (code, err) == (0, "")
    _, listed, _ = await output(hub_process, "silences", "--json")
    name = json.loads(listed)["id"]
    _, table, _ = await output(hub_process, "silences", env=environment(hub_process) | {"COLUMNS": "80"})
    assert name in table
    assert (await output(hub_process, "end-silence", name))[0] == 0


def test_a_zone_with_faults_is_not_listed_as_normal() -> None:
    fault = Fault(device="s-1", reason="never heard")
    zones = [
        Zone(namespace="default", name="hall", state=ZoneState.NORMAL.wire, declared=1, covered=1),
        Zone(namespace="default", name="yard", state=ZoneState.NORMAL.wire, declared=1, faults=[fault]),
        Zone(namespace="default", name="attic", state=ZoneState.ALARM.wire, declared=1, faults=[fault]),
    ]
    assert [str(zone_row(zone)[1]) for zone in zones] == ["NORMAL", "FAULT", "ALARM"]


async def test_a_command_without_a_token_says_how_to_provide_one(hub_process: HubProcess, tmp_path: Path) -> None:
    hub_process.start()
    await hub_process.ready()
    bare = {key: value for key, value in os.environ.items() if key != "EMBEREYE_TOKEN"}
    for arguments, word in ((["list"], "alarms"), (["watch"], "alarms"), (["whoami"], "access")):
        code, _, err = await output(hub_process, *arguments, words=word, env=bare, cwd=tmp_path)
        assert (code, "--token or EMBEREYE_TOKEN" in err, "Traceback" in err) == (4, True, False)
    console = ["--console", f"http://127.0.0.1:{hub_process.http_port}"]
    explain = [sys.executable, "-m", "embereye_cli", "explain", "device", "s-1", *console]
    process = await asyncio.create_subprocess_exec(*explain, stderr=asyncio.subprocess.PIPE, env=bare, cwd=tmp_path)
    assert "--token or EMBEREYE_TOKEN" in (await process.communicate())[1].decode()
    process = await asyncio.create_subprocess_exec(
        *explain, stderr=asyncio.subprocess.PIPE, env=environment(hub_process)
    )
    assert "there is no device s-1" in (await process.communicate())[1].decode()


async def test_the_local_hubs_token_is_used_automatically_for_that_hub(hub_process: HubProcess, tmp_path: Path) -> None:
    hub_process.start()
    await hub_process.ready()
    folder = tmp_path / "site"
    (folder / ".embereye" / "hub").mkdir(parents=True)
    (folder / ".embereye" / "hub" / "admin-token").write_text(hub_process.token + "\n")
    bare = {key: value for key, value in os.environ.items() if key != "EMBEREYE_TOKEN"}
    code, out, _ = await output(hub_process, "whoami", words="access", env=bare, cwd=folder)
    assert (code, out) == (0, "admin, admin\n")
    file = folder / ".embereye" / "hub" / "admin-token"
    code, out, _ = await output(hub_process, "--token", f"@{file}", "whoami", words="access", env=bare)
    assert (code, out) == (0, "admin, admin\n")


def test_the_local_hubs_token_is_not_sent_to_other_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".embereye" / "hub").mkdir(parents=True)
    (tmp_path / ".embereye" / "hub" / "admin-token").write_text("ours\n")
    assert [token_for("", host) for host in ("127.0.0.1", "[::1]", "localhost")] == ["ours"] * 3
    assert [token_for("", host) for host in ("fire.example", "10.0.0.1", "")] == [""] * 3
    assert token_for("mine", "127.0.0.1") == "mine"
    with pytest.raises(UserError, match="cannot be read"):
        token_for("@nowhere", "127.0.0.1")


async def test_tokens_are_created_listed_used_and_revoked_by_the_command(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "e1", "s-1")
    code, token, _ = await output(hub_process, "create", "ada", "--role", "operator", words="access")
    assert code == 0
    hers = {**os.environ, "EMBEREYE_TOKEN": token.strip()}
    code, out, _ = await output(hub_process, "list", words="access")
    assert ("ada" in out, "operator" in out, token.strip() in out) == (True, True, False)
    code, out, _ = await output(hub_process, "--json", "ack", "hall\x1b[2J", "--note", "going", env=hers)
    assert json.loads(out)["who"] == "ada"
    code, _, err = await output(hub_process, "list", words="access", env=hers)
    assert (code, "ada is operator: this takes the role admin" in err) == (4, True)
    code, out, _ = await output(hub_process, "link", "--console", "https://fire.example/", words="access", env=hers)
    assert out.startswith("https://fire.example/login#")
    code, out, _ = await output(hub_process, "--json", "audit", words="access")
    actions = [json.loads(line)["action"] for line in out.splitlines()]
    assert actions == ["create link", "acknowledge", "create token"]
    assert "\x1b[2J" not in (await output(hub_process, "audit", words="access"))[1]
    assert (await output(hub_process, "revoke", "ada", words="access"))[0] == 0
    code, _, err = await output(hub_process, "list", env=hers)
    assert (code, "refuses the token" in err) == (4, True)


async def test_a_token_of_a_fleet_sees_nothing_without_a_device_of_it(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "e1", "s-1")
    create = ("create", "yard", "--role", "viewer", "--fleet")
    code, _, err = await output(hub_process, *create, "hall/yard", words="access")
    assert (code, '"hall/yard" is not a fleet such as hall/cameras/yard' in err) == (2, True)
    code, token, _ = await output(hub_process, *create, "default/cameras/yard", words="access")
    assert code == 0
    env = {**os.environ, "EMBEREYE_TOKEN": token.strip()}
    assert "default/cameras/yard" in (await output(hub_process, "whoami", words="access", env=env))[1]
    assert "hall" in (await output(hub_process, "--json", "list"))[1]
    assert "hall" not in (await output(hub_process, "--json", "list", env=env))[1]


async def test_a_zone_is_silenced_listed_and_unsilenced_by_the_command(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "one", "s-01")
    zone = "hall\x1b[2J"
    code, _, err = await output(hub_process, "silence", zone, "--for", "2d", "--reason", "a long weekend")
    assert (code, "--for is more than 24h" in err) == (2, True)
    code, out, _ = await output(hub_process, "--json", "silence", zone, "--for", "90s", "--reason", "we are there")
    silence = json.loads(out)["silence"]
    assert (code, silence["who"], silence["level"]) == (0, "admin", "LEVEL_ALARM")
    assert int(silence["untilNs"]) - int(silence["sinceNs"]) == 120 * 10**9, "never shorter than requested"
    assert "we are there" in (await output(hub_process, "silences"))[1]
    assert "by admin: we are there" in " ".join((await output(hub_process, "list"))[1].split())
    code, out, _ = await output(hub_process, "end-silence", silence["id"])
    assert (code, "was ended by admin" in out) == (0, True)
    assert "Nothing is silenced." in (await output(hub_process, "silences"))[1]
    code, _, err = await output(hub_process, "end-silence", silence["id"])
    assert (code, "there is no silence" in err) == (5, True)


async def test_an_alarm_is_marked_as_false_listed_and_unmarked_by_the_command(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "one", "s-01")
    _, listed, _ = await output(hub_process, "--json", "history")
    alarm = json.loads(listed.splitlines()[0])["alarm"]
    code, _, err = await output(hub_process, "false", alarm)
    assert (code, err) == (2, "embereye: --reason is missing: say what looked like a fire\n")
    code, out, _ = await output(hub_process, "false", alarm, "--reason", "steam")
    assert (code, "FALSE ALARM" in out) == (0, True)
    _, out, _ = await output(hub_process, "false-alarms")
    assert "smoke at s-01" in out
    assert (await output(hub_process, "false", alarm, "--take-back"))[0] == 0
    assert "No alarm is marked as false." in (await output(hub_process, "false-alarms"))[1]


async def test_history_is_filtered_and_paged_by_the_command(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    for number in range(4):
        await report(hub_process, f"e{number}", f"s-{number}")

    async def cursors(*words: str) -> list[int]:
        code, out, err = await output(hub_process, "--json", "history", *words)
        assert (code, err) == (0, "")
        return [int(json.loads(line)["cursor"]) for line in out.splitlines()]

    assert await cursors("--limit", "2") == [1, 2]
    assert await cursors("--newest", "--limit", "2") == [3, 4]
    assert await cursors("--newest", "--limit", "2", "--before", "4", "--type", "evidence") == [2, 3]
    assert await cursors("--device", "s-3", "--since", "1h") == [4]
    assert await cursors("--kind", "heat") == await cursors("--until", "1h") == []
    assert (await output(hub_process, "history", "--zone", "attic"))[0] == 5
    code, _, err = await output(hub_process, "history", "--since", "yesterday")
    assert (code, "is not a time such as" in err) == (2, True)


async def explain(hub: HubProcess, *arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "embereye_cli", "explain", "alarm", "--console", f"http://127.0.0.1:{hub.http_port}",
        *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment(hub),
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, out.decode(), err.decode()


async def test_explain_shows_an_alarms_stages_and_replays_its_decision(
    hub_process: HubProcess,
) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "one", "s-01")
    _, listed, _ = await output(hub_process, "--json", "history")
    alarm = json.loads(listed.splitlines()[0])["alarm"]
    await output(hub_process, "ack", "hall\x1b[2J", "--who", "Ada")
    code, out, err = await explain(hub_process, alarm, "--replay")
    assert (code, err) == (0, "")
    stages = [line.split(" s  ")[1].split()[0] for line in out.splitlines() if " s  " in line]
    assert stages == ["first", "measured", "decided", "person"]
    assert f"decided by EmberEye {version('embereye')}" in out
    assert "the zone on the reported signs: same decision as then: alarm, smoke" in out
    assert "\x1b" not in out
    code, _, err = await explain(hub_process, "0123456789abcdef")
    assert (code, "there is no alarm 0123456789abcdef" in err) == (5, True)


async def test_a_refused_command_names_the_action_and_the_role_it_needs(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    await report(hub_process, "e1", "s-1")
    _, token, _ = await output(hub_process, "create", "guest", "--role", "viewer", words="access")
    guest = {**os.environ, "EMBEREYE_TOKEN": token.strip()}
    code, _, err = await output(hub_process, "ack", "hall\x1b[2J", env=guest)
    assert (code, err.count("\n")) == (4, 1)
    assert err.startswith("embereye: `embereye alarms ack` is refused: guest is viewer: this takes the role operator. ")
    assert "`embereye access create NAME --role operator`" in err
    code, _, err = await output(hub_process, "list", words="access", env=guest)
    assert (code, "`embereye access list` is refused: guest is viewer" in err) == (4, True)
    assert "`embereye access create NAME --role admin`" in err


async def test_an_unknown_name_is_answered_with_the_command_that_lists_names(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()
    unknown = "0123456789abcdef"
    for words, action, shows in (
        ("alarms", ("false", unknown, "--reason", "steam"), "embereye alarms --json history"),
        ("alarms", ("false", unknown, "--take-back"), "embereye alarms false-alarms"),
        ("alarms", ("end-silence", unknown), "embereye alarms silences"),
        ("alarms", ("watch", "--subscription", "night"), "embereye subscriptions list"),
        ("subscriptions", ("delete", "night"), "embereye subscriptions list"),
        ("webhooks", ("test", "pager"), "embereye webhooks list"),
        ("access", ("revoke", "ada"), "embereye access list"),
    ):
        code, _, err = await output(hub_process, *action, words=words)
        assert (code, f"`{shows}`" in err, "/v1/" in err) == (5, True, False), err
    code, _, err = await explain(hub_process, unknown)
    assert (code, err) == (
        5,
        f"embereye: there is no alarm {unknown}. `embereye alarms --json history` has their ids\n",
    )


async def test_errors_of_the_connection_and_the_token_do_not_show_api_addresses(
    hub_process: HubProcess,
) -> None:
    hub_process.start()
    await hub_process.ready()
    console, grpc_port = f"http://127.0.0.1:{hub_process.http_port}", hub_process.grpc.rpartition(":")[2]
    for arguments, expected, sentence in (
        (("--token", "wrong"), 4, f"the hub at {console} refuses the token: unknown token or session: "),
        (
            ("--console", f"http://127.0.0.1:{grpc_port}"),
            3,
            "does not answer as a hub of this version. --console names",
        ),
        (("--console", "http://127.0.0.1:1"), 3, "cannot reach the hub at http://127.0.0.1:1: connection refused."),
        (("--console", "http://127.0.0.1:port"), 2, 'port" is not a URL such as'),
    ):
        code, _, err = await explain(hub_process, "0123456789abcdef", *arguments)
        assert (code, sentence in err, "/v1/" in err, "Traceback" in err) == (expected, True, False, False), err


async def test_a_subscription_is_stored_shown_followed_and_deleted_by_the_command(hub_process: HubProcess) -> None:
    hub_process.start()
    await hub_process.ready()

    async def subscriptions(*arguments: str) -> tuple[int | None, str, str]:
        return await output(hub_process, *arguments, words="subscriptions")

    assert "No subscriptions." in (await subscriptions("list"))[1]
    code, out, _ = await subscriptions("store", "night", "--level", "alarm", "--zone", "hall\x1b[2J")
    assert (code, "levels: alarm" in out, "\x1b[2J" in out) == (0, True, False)
    code, out, _ = await subscriptions("--json", "show", "night")
    assert json.loads(out)["selection"]["levels"] == ["LEVEL_ALARM"]
    code, out, _ = await subscriptions("list")
    assert ("night" in out, "by" in out.lower(), "admin" in out) == (True, True, True)
    following = await command(hub_process, "--json", "follow", "night", "--cursor", "0", words="subscriptions")
    await report(hub_process, "e1", "s-1")
    assert following.stdout is not None
    event = json.loads(await asyncio.wait_for(following.stdout.readline(), 20))
    assert event["contributions"][0]["device"] == "s-1"
    following.terminate()
    await following.communicate()
    code, _, err = await output(hub_process, "watch", "--subscription", "night", "--zone", "hall")
    assert (code, err) == (2, "embereye: subscription: it already has a selection. Leave out selection and zones.\n")
    assert (await subscriptions("delete", "night"))[0] == 0
    for action in ("show", "delete", "follow"):
        code, _, err = await subscriptions(action, "night")
        assert (code, 'no subscription "night"' in err) == (5, True), action
