"""The output and errors of `kubectl embereye`."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from harness.eventually import wait_for
from harness.need import KUBECTL, program
from lightkube.core.exceptions import ApiError

from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye_cli import plugin
from embereye_cli.cluster import storage
from embereye_cli.cluster.kubectl_options import target_of
from embereye_cli.explain.fleet import print_explanation
from embereye_cli.main import main
from embereye_operator.api.fleets import parse_fleet
from embereye_operator.api.schema import to_manifest
from embereye_operator.decide.manifests.names import ANNOTATION_DRAIN
from embereye_operator.decide.ownership.staleness import why_stale
from embereye_operator.decide.placement.record import read_record
from embereye_operator.runtime.kubernetes.client import client
from embereye_operator.runtime.kubernetes.client.client import Target, connected

from ..fakes import World
from ..site import Site
from ..test_reconcile import PLACEMENT, fleet_of


async def world_of(**options: Any) -> World:
    world = World(fleet_of(count=4, shards=2), **options)
    await world.run_until_complete()
    return world


def parsed(world: World, status: Any) -> Any:
    return parse_fleet({**world.manifest, "status": to_manifest(status)})


async def test_status_lists_each_fleets_state_and_problems() -> None:
    world = await world_of()
    well = parsed(world, (await world.step()).status)
    world.runtime.shards["hall-sensors-0"].dark = {"s-00": "never heard", "s-01": "never heard"}
    world.runtime.shards["hall-sensors-1"].dark = {"s-00": "never heard", "s-01": "never heard"}
    ill = parsed(world, (await world.step()).status)
    lines = plugin.status_table([plugin.status_of(well), plugin.status_of(ill)]).splitlines()
    assert lines[0].split()[:3] == ["NAMESPACE", "FLEET", "WELL"]
    assert lines[1].split()[:6] == ["default", "sf/hall", "yes", "2/2", "1", "4/4"]
    assert " NO " in lines[2]
    assert "2 of 4 devices are dark: s-00 (never heard)" in lines[2]
    assert plugin.status_of(ill)["why"] == ["2 of 4 devices are dark: s-00 (never heard), s-01 (never heard)"]
    new = plugin.status_of(parse_fleet(world.manifest))
    assert not new["well"], "a fleet that nobody looks after is not well"


async def test_the_status_of_an_absent_operator_is_not_shown_as_current() -> None:
    world = await world_of()
    fleet = parsed(world, (await world.step()).status)
    observed = fleet.status["lastObserved"]
    name = "embereye/embereye-operator"
    fleet = parse_fleet({**fleet.manifest, "status": {**fleet.status, "operator": {"name": name}}})
    assert not why_stale(fleet, {}, world.now)
    why = why_stale(fleet, {name: "operator X has not renewed its Lease for 75 s"}, world.now)
    assert why == f"nobody has observed the fleet since {observed}: operator X has not renewed its Lease for 75 s"
    line = plugin.status_of(fleet, why)
    assert (line["well"], line["stale"], line["lastObserved"]) == (False, why, observed)
    assert plugin.status_table([line]).splitlines()[1].split()[2] == "UNKNOWN"
    assert "does not write its status" in why_stale(fleet, {}, world.now + 3600 * SECOND)


async def test_devices_are_listed_with_their_shard_dark_ones_first() -> None:
    world = await world_of()
    for shard in world.runtime.shards.values():
        shard.dark = {"s-03": "never heard"}
    fleet = parsed(world, (await world.step()).status)
    record = read_record(fleet, world.runtime.objects[PLACEMENT])
    devices = plugin.devices_of(fleet, record)
    assert {entry["device"]: entry["shard"] for entry in devices} == dict(record.devices)
    lines = plugin.devices_table(devices).splitlines()
    assert lines[1].split()[0] == "s-03"
    assert lines[1].endswith("DARK: never heard")
    assert "hall" in lines[2].split()
    assert json.dumps(devices)


async def test_a_drained_shard_is_replaced_by_another() -> None:
    world = await world_of()
    world.manifest["metadata"]["annotations"] = {ANNOTATION_DRAIN: "hall-sensors-0, something-else"}
    await world.run_until_complete()
    assert set(world.runtime.shards) == {"hall-sensors-1", "hall-sensors-2"}
    assert all(len(owners) == 1 for owners in world.owners().values())
    world.manifest["metadata"]["annotations"] = {}
    await world.run_until_complete()
    assert set(world.runtime.shards) == {"hall-sensors-1", "hall-sensors-2"}


def test_a_message_of_several_lines_does_not_break_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    denied = "admission webhook denied the request:\n\nno shards here\x1b[2J"
    conditions = [
        {"type": name, "status": "False", "reason": "Denied", "message": denied}
        for name in ("Covered", "ScalingActive", "Exposed")
    ]
    rollout = {"image": "embereye:1", "updated": 0, "held": 1, "why": denied}
    dark = [{"id": "s-00", "reason": denied}]
    status = {"conditions": conditions, "rollout": rollout, "devices": {"declared": 4, "dark": dark}}
    fleet = parse_fleet({**fleet_of(count=4, shards=1), "status": status})
    assert len(plugin.status_table([plugin.status_of(fleet)]).splitlines()) == 2
    assert len(plugin.devices_table(plugin.devices_of(fleet, read_record(fleet, None))).splitlines()) == 5
    assert len(plugin.addresses_table(fleet).splitlines()) == 2
    assert len(plugin.rollout_text(fleet).splitlines()) == 2
    print_explanation(fleet, "table")
    assert capsys.readouterr().out.splitlines()[-1].endswith("no shards here\\x1b[2J")


@pytest.mark.parametrize("text", ["no", "{}", "7", "\xff", None])
def test_an_unreadable_fleet_of_a_data_folder_is_named(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fleets" / "hall.json"
    path.parent.mkdir()
    if text is None:
        path.mkdir()
    else:
        path.write_text(text, encoding="latin-1")
    assert main(["explain", "fleet", "hall", "--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"embereye: {path} cannot be read: ")


def test_a_shard_is_named_by_name_or_number() -> None:
    fleet = parse_fleet(fleet_of())
    for text in ("1", "01", "hall-sensors-1", "hall-sensors-01"):
        assert plugin.shard_of(fleet, text) == "hall-sensors-1"
    for text in ("yard-sensors-1", "hall", "hall-sensors", "hall-sensors-x", "9" * 5_000):
        with pytest.raises(UserError, match="not a shard of hall"):
            plugin.shard_of(fleet, text)


def test_a_missing_cluster_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    for line in (
        "status", "devices hall", "addresses hall", "explain hall", "drain hall", "pause hall", "resume hall",
        "rollout status hall", f"report --to {tmp_path / 'report.tar.gz'}", "migrate-storage",
    ):  # fmt: skip
        assert plugin.main(line.split()) == 2, line
        assert "set KUBECONFIG" in (printed := capsys.readouterr().err), line
        assert "--data" not in printed, "an option of `embereye explain fleet` alone"
    assert main(["explain", "fleet", "hall"]) == 2
    assert "set KUBECONFIG" in (printed := capsys.readouterr().err)
    assert "`embereye up` with --data" in printed


@pytest.mark.parametrize(
    "line",
    [
        "status --context there --kubeconfig file -n site",
        "--context there --kubeconfig file -n site status",
        "--context=there status --kubeconfig=file --namespace=site",
        "-nsite --kubeconfig file devices hall --context there",
        "explain hall --namespace site --kubeconfig=file --context=there",
        "-n elsewhere pause hall -n site --context there --kubeconfig file",
    ],
)
def test_kubectls_flags_work_before_and_after_the_command(line: str) -> None:
    assert target_of(plugin.build_parser().parse_args(line.split())) == Target("site", "there", "file")


def test_all_namespaces_wins_over_one_namespace() -> None:
    assert target_of(plugin.build_parser().parse_args(["-n", "site", "status", "-A"])).namespace == "*"
    assert target_of(plugin.build_parser().parse_args(["status"])) == Target()


def kubeconfig(path: Path, current: str, **servers: str) -> Path:
    """Write a kubeconfig with a context for each server, named like the server."""
    document = {
        "clusters": [{"name": name, "cluster": {"server": server}} for name, server in servers.items()],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "u", "namespace": f"of-{name}"}} for name in servers
        ],
        "current-context": current,
    }
    path.write_text(json.dumps(document))
    return path


EXEC = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "no-such-plugin"}


@pytest.mark.parametrize(
    ("cluster", "user", "expected"),
    [
        ({"server": "https://127.0.0.1:99999"}, {}, "Port out of range"),
        ({"certificate-authority": "/nowhere/ca.crt"}, {}, "/nowhere/ca.crt does not exist"),
        ({"certificate-authority-data": "bm9uZQ=="}, {}, "no certificate or crl found"),
        ({}, {"client-certificate": "/nowhere/tls.crt", "client-key": "/nowhere/tls.key"}, "/nowhere/tls.crt does"),
        ({}, {"exec": EXEC}, "no-such-plugin, which provides its credentials, is not installed"),
        ({}, {"exec": {**EXEC, "command": "false"}}, "Exec false returned 1"),
        ({}, {"exec": {**EXEC, "command": False}}, "Expected `str`, got `bool`"),
    ],
)
def test_an_unusable_kubeconfig_is_refused_with_the_reason(
    cluster: dict[str, Any], user: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(tmp_path / "config", "a", a="https://127.0.0.1:9")
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"].update(cluster)
    document["users"][0]["user"] = user
    path.write_text(json.dumps(document))
    assert plugin.main(["status", "--kubeconfig", str(path)]) == 2
    assert expected in (printed := capsys.readouterr().err)
    assert "set KUBECONFIG" in printed


class WithoutKinds(BaseHTTPRequestHandler):
    """Answers as an API server without EmberEye's kinds."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"404 page not found\n")

    def log_message(self, *args: object, **_: object) -> None: ...


def test_a_cluster_without_our_kinds_is_named_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = HTTPServer(("127.0.0.1", 0), WithoutKinds)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        path = kubeconfig(tmp_path / "config", "a", a=f"http://127.0.0.1:{server.server_port}")
        assert plugin.main(["status", "--kubeconfig", str(path)]) == 2
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    printed = capsys.readouterr().err
    assert "knows no sensorfleets: install EmberEye's CustomResourceDefinitions" in printed


@pytest.mark.parametrize("text", ["", "- a", "apiVersion: v1", "{{{", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert plugin.main(["status", "--kubeconfig", str(path)]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("kubectl embereye: no Kubernetes cluster is configured (")
    assert "set KUBECONFIG" in printed


async def test_context_and_kubeconfig_select_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", "a", a="https://a.example", b="https://b.example")
    second = kubeconfig(tmp_path / "second", "c", c="https://c.example")
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{tmp_path / 'absent'}{os.pathsep}{second}")

    async def asked(target: Target) -> tuple[str, str]:
        async with connected(target) as client:
            return str(client.config.cluster.server), client.namespace

    assert await asked(Target()) == ("https://a.example", "of-a")
    assert await asked(Target(context="b")) == ("https://b.example", "of-b")
    assert await asked(Target(context="c", namespace="site")) == ("https://c.example", "site")
    assert await asked(Target(kubeconfig=str(second))) == ("https://c.example", "of-c")
    with pytest.raises(UserError, match="'d' not found"):
        await asked(Target(context="d"))


def test_the_plugin_imports_neither_pictures_nor_the_operators_framework(tmp_path: Path) -> None:
    program = (
        "import sys; from embereye_cli.plugin import main; code = main(['status', '--kubeconfig', 'absent']);"
        "print(code, sorted({'cv2', 'numpy', 'av', 'kopf'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []"
    assert "absent not found" in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["status"]])
def test_a_closed_pipe_ends_the_plugin_without_a_traceback(
    words: list[str],
) -> None:
    program = (
        "import sys; from embereye_cli import plugin\n"
        "async def status(_):\n    print('\\u2026'); return 0\n"
        "plugin._status = status; sys.exit(plugin.main())"
    )
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-c", program, *words], check=False, stdout=closed, stderr=subprocess.PIPE, env=environment
        )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.apiserver
@pytest.mark.needs(KUBECTL)
@pytest.mark.slow
def test_kubectl_finds_the_plugin_and_its_commands_work(site: Site, tmp_path: Path) -> None:
    plugin_path = tmp_path / "kubectl-embereye"
    plugin_path.write_text(f'#!/bin/sh\nexec {sys.executable} -m embereye_cli.plugin "$@"\n')
    plugin_path.chmod(0o755)
    kubectl = str(program("kubectl"))
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig(tmp_path / "elsewhere", "a", a="https://127.0.0.1:9")),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }

    where = ["--kubeconfig", str(site.cluster.kubeconfig), "--context=t"]

    def run(*arguments: str) -> str:
        command = [kubectl, "embereye", *where, *arguments, "-n", site.namespace]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    def devices() -> dict[str, str]:
        return {entry["device"]: entry["shard"] for entry in json.loads(run("devices", "hall", "-o", "json"))}

    (fleet,) = json.loads(run("status", "-o", "json"))
    assert (fleet["fleet"], fleet["well"], fleet["covered"]) == ("sf/hall", True, 4)
    assert run("status").splitlines()[1].split()[1:6] == ["sf/hall", "yes", "2/2", "1", "4/4"]
    assert set(devices().values()) == {"hall-sensors-0", "hall-sensors-1"}
    assert "formula" in run("explain", "hall")
    assert json.loads(run("explain", "hall", "-o", "json"))["formula"]["law"] == 1
    assert "hall-sensors-0" in run("drain", "hall", "0")
    wait_for(lambda: set(devices().values()) == {"hall-sensors-1", "hall-sensors-2"}, "another shard in its place")
    assert "none" in run("drain", "hall", "0", "--undo")
    assert "is paused" in run("pause", "sf/hall")
    site.scale(4)
    wait_for(lambda: json.loads(run("status", "-o", "json"))[0]["shards"] == 4, "the new number")
    assert json.loads(run("status", "-o", "json"))[0]["paused"]
    assert "is active again" in run("resume", "hall")
    site.wait_until_healed(4)


@pytest.mark.parametrize(
    ("action", "expected"),
    [("pause", {"paused": True}), ("resume", {"paused": False}), ("undo", {"image": "embereye:1"})],
)
def test_a_rollout_action_is_reported_in_json_on_request(
    action: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rollout = {"image": "embereye:2", "from": "embereye:1", "updated": 0, "held": 1}
    fleet = parse_fleet({**fleet_of(count=4, shards=1), "status": {"rollout": rollout}})

    async def answer(*_: Any) -> Any:
        return fleet

    monkeypatch.setattr(plugin, "connected", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(plugin, "_named_fleet", answer)
    monkeypatch.setattr(plugin, "_patch", answer)
    assert plugin.main(["rollout", action, "hall", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"fleet": fleet.key, **expected}


class Stored:
    """An API server with a fleet of another version between two others."""

    namespace = "default"

    async def list(self, kind: Any, **_: Any) -> Any:
        if kind._api_info.resource.kind == "SensorFleet":
            for name in ("hall", "odd", "yard"):
                fleet = fleet_of(count=4, shards=1)
                spec = {**fleet["spec"], "shards": "many"} if name == "odd" else fleet["spec"]
                yield {**fleet, "metadata": {**fleet["metadata"], "name": name}, "spec": spec}


def test_an_unreadable_fleet_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "connected", lambda _: contextlib.nullcontext(Stored()))
    monkeypatch.setattr(plugin, "connected", lambda _: contextlib.nullcontext(Stored()))
    assert plugin.main(["status"]) == 0
    expected = capsys.readouterr()
    assert [line.split()[1] for line in expected.out.splitlines()[1:]] == ["sf/hall", "sf/yard"]
    assert "SensorFleet default/odd: " in expected.err
    assert plugin.main(["explain", "yard"]) == 0
    assert plugin.main(["explain", "odd"]) == 5
    assert "there are: sf/hall, sf/yard" in capsys.readouterr().err


class Leaving:
    """An API server where one of two fleets is deleted while they are written again."""

    async def list(self, *_: Any, **__: Any) -> Any:
        for name in ("gone", "hall"):
            yield {"metadata": {"name": name, "namespace": "site"}}

    async def patch(self, _: Any, name: str, *__: Any, **___: Any) -> None:
        if name == "gone":
            raise ApiError(response=httpx.Response(404, json={"code": 404, "message": "not found"}))


async def test_a_fleet_deleted_during_the_migration_is_skipped() -> None:
    assert await storage._rewrite(Leaving(), "SensorFleet") == 1  # type: ignore[arg-type]
