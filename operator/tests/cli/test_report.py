"""`kubectl embereye report`: everything that helps, nothing that is secret."""

import base64
import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from harness.servers.apiserver import ApiServer

from embereye_cli import plugin
from embereye_cli.cluster.report import _Report, concealed, without_secrets

from ..processes.test_operator import create, sensor_fleet

PASSWORD = "hunter2"


def test_of_urls_host_and_port_alone_are_kept() -> None:
    line = (
        f'dialling rtsp://admin:{PASSWORD}@cam-1:554/live, then "http://cam-2:80/user=admin_password={PASSWORD}?x=1"\n'
    )
    assert without_secrets(line) == 'dialling rtsp://cam-1:554 then "http://cam-2:80"\n'


@pytest.mark.parametrize("password", ["it's-a-secret", "'", "a'b'c"])
def test_a_password_with_an_apostrophe_is_not_kept_either(password: str) -> None:
    line = f"cannot dial 'rtsp://admin:{password}@cam-1:554/live': refused; 'http://cam-2' answers, as does b@c"
    assert without_secrets(line) == "cannot dial 'rtsp://cam-1:554': refused; 'http://cam-2' answers, as does b@c"


@pytest.mark.parametrize(
    "name", ["EMBEREYE_TOKEN", "PGPASSWORD", "DATABASE_DSN", "OTEL_EXPORTER_OTLP_HEADERS", "API_KEY"]
)
def test_values_of_variables_that_are_secret_are_left_out(name: str) -> None:
    document = {"env": [{"name": name, "value": PASSWORD}, {"name": "LEVEL", "value": "INFO"}]}
    assert json.loads(concealed(document)) == {
        "env": [{"name": name, "value": "…"}, {"name": "LEVEL", "value": "INFO"}]
    }


def test_values_of_options_that_are_secret_are_left_out() -> None:
    words = ["hub", f"--token={PASSWORD}", "--password", PASSWORD, "--admin-token-file=/etc/token", "--data", "/var"]
    assert json.loads(concealed({"args": words})) == {
        "args": ["hub", "--token=…", "--password", "…", "--admin-token-file=/etc/token", "--data", "/var"]
    }


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (f"host=db user=ember password={PASSWORD} dbname=ember", "host=db user=ember password=… dbname=ember"),
        (f'refused: {{"token": "{PASSWORD}", "zone": "hall"}}', 'refused: {"token": "…", "zone": "hall"}'),
        (f"Authorization: Bearer {PASSWORD}, again", "Authorization: Bearer …, again"),
        ("the token of Ada has expired: make another", "the token of Ada has expired: make another"),
        ('"secret": {"secretName": "camera"}', '"secret": {"secretName": "camera"}'),
        ("s-01 in zone basic training room", "s-01 in zone basic training room"),
    ],
)
def test_a_secret_that_a_log_lets_slip_is_left_out(said: str, kept: str) -> None:
    assert without_secrets(said) == kept


def test_what_was_applied_is_not_told_a_second_time() -> None:
    applied = json.dumps({"env": [{"name": "EMBEREYE_TOKEN", "value": PASSWORD}]})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied, "note": "kept"}
    assert json.loads(concealed({"annotations": annotations})) == {"annotations": {"note": "kept"}}


def test_of_packed_files_as_large_fleets_have_them_host_and_port_alone_are_kept() -> None:
    assignment = json.dumps({"cameras": [{"id": "c-1", "source": f"rtsp://admin:{PASSWORD}@cam-1:554/live"}]})
    packed = base64.b64encode(gzip.compress(assignment.encode())).decode()
    unreadable = base64.b64encode(PASSWORD.encode()).decode()
    manifest = {"kind": "ConfigMap", "binaryData": {"yard-cameras-0.json.gz": packed, "odd": unreadable}}
    told = json.loads(concealed(manifest))
    assert told == {
        "kind": "ConfigMap",
        "data": {"yard-cameras-0.json": '{"cameras": [{"id": "c-1", "source": "rtsp://cam-1:554"}]}'},
    }


def read(path: Path) -> dict[str, str]:
    """Names below the archive's one folder → texts."""
    with tarfile.open(path) as archive:
        return {
            member.name.partition("/")[2]: file.read().decode()
            for member in archive.getmembers()
            if (file := archive.extractfile(member))
        }


@pytest.mark.apiserver
def test_a_report_holds_fleets_and_no_password(
    cluster: ApiServer, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, sensor_fleet(namespace))
    source = f"rtsp://admin:{PASSWORD}@camera.example:554/stream?password={PASSWORD}"
    cameras: dict[str, Any] = {
        "apiVersion": "embereye.dev/v1alpha1",
        "kind": "CameraFleet",
        "metadata": {"name": "yard", "namespace": namespace},
        "spec": {"cameras": [{"id": "c-1", "zone": "gate", "source": source}]},
    }
    create(cluster, cameras)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "camera", "namespace": namespace},
              "stringData": {"password": PASSWORD}}  # fmt: skip
    create(cluster, secret)
    path = tmp_path / "report.tar.gz"
    where = ["--kubeconfig", str(cluster.kubeconfig), "-n", namespace]
    assert plugin.main(["report", *where, "--to", str(path)]) == 0
    told = capsys.readouterr()
    assert "Read it before you send it" in told.out
    assert f"no pod of EmberEye is in namespace {namespace}" in told.err
    found = read(path)
    assert json.loads(found["objects/SensorFleet.json"])[0]["metadata"]["name"] == "hall"
    assert (
        json.loads(found["objects/CameraFleet.json"])[0]["spec"]["cameras"][0]["source"] == "rtsp://camera.example:554"
    )
    assert PASSWORD not in "".join(found.values())
    assert "Secret" not in "".join(found)


class SlowServer:
    """One that is too slow to list events, and one container's log."""

    async def list(self, kind: Any, **_: object) -> Any:
        resource = kind._api_info.resource.kind
        if resource == "Event":
            raise httpx.ReadTimeout("")
        if resource == "Pod":
            containers = [{"name": name} for name in ("slow", "shard")]
            yield {"metadata": {"name": "hall-0", "namespace": "site"}, "spec": {"containers": containers}}

    async def log(self, _: str, *, container: str, **__: object) -> Any:
        yield "first line\n"
        if container == "slow":
            raise httpx.ReadTimeout("")
        yield "last line\n"


async def test_what_an_api_server_is_too_slow_to_tell_is_said_and_all_else_is_there(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        await _Report(SlowServer(), archive, "report").collect("site", 10)  # type: ignore[arg-type]
    found = read(path)
    assert found["missing.txt"] == "Event: ReadTimeout\nthe log of site/hall-0 slow: ReadTimeout\n"
    assert found["logs/site/hall-0/slow.txt"] == "first line\n"
    assert found["logs/site/hall-0/shard.txt"] == "first line\nlast line\n"


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}],"
        " users: [{name: u, user: {}}], contexts: [{name: a, context: {cluster: a, user: u}}]}"
    )
    path = tmp_path / "nowhere" / "report.tar.gz"
    assert plugin.main(["report", "--kubeconfig", str(config), "--to", str(path)]) == 2
    assert f"{path} cannot be written" in capsys.readouterr().err
