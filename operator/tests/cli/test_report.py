"""`kubectl embereye report`: objects and logs, without secrets."""

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


def test_urls_are_reduced_to_host_and_port() -> None:
    line = (
        f'dialling rtsp://admin:{PASSWORD}@cam-1:554/live, then "http://cam-2:80/user=admin_password={PASSWORD}?x=1"\n'
    )
    assert without_secrets(line) == 'dialling rtsp://cam-1:554 then "http://cam-2:80"\n'


@pytest.mark.parametrize("password", ["it's-a-secret", "'", "a'b'c"])
def test_a_password_with_an_apostrophe_is_removed(password: str) -> None:
    line = f"cannot dial 'rtsp://admin:{password}@cam-1:554/live': refused; 'http://cam-2' answers, as does b@c"
    assert without_secrets(line) == "cannot dial 'rtsp://cam-1:554': refused; 'http://cam-2' answers, as does b@c"


@pytest.mark.parametrize(
    "name", ["EMBEREYE_TOKEN", "PGPASSWORD", "DATABASE_DSN", "OTEL_EXPORTER_OTLP_HEADERS", "API_KEY"]
)
def test_values_of_secret_variables_are_removed(name: str) -> None:
    document = {"env": [{"name": name, "value": PASSWORD}, {"name": "LEVEL", "value": "INFO"}]}
    assert json.loads(concealed(document)) == {
        "env": [{"name": name, "value": "…"}, {"name": "LEVEL", "value": "INFO"}]
    }


def test_values_of_secret_options_are_removed() -> None:
    words = ["hub", f"--token={PASSWORD}", "--password", PASSWORD, "--admin-token-file=/etc/token", "--data", "/var"]
    assert json.loads(concealed({"args": words})) == {
        "args": ["hub", "--token=…", "--password", "…", "--admin-token-file=/etc/token", "--data", "/var"]
    }


@pytest.mark.parametrize(
    ("logged", "cleaned"),
    [
        (f"host=db user=ember password={PASSWORD} dbname=ember", "host=db user=ember password=… dbname=ember"),
        (f'refused: {{"token": "{PASSWORD}", "zone": "hall"}}', 'refused: {"token": "…", "zone": "hall"}'),
        (f"Authorization: Bearer {PASSWORD}, again", "Authorization: Bearer …, again"),
        ("the token of Ada has expired: make another", "the token of Ada has expired: make another"),
        ('"secret": {"secretName": "camera"}', '"secret": {"secretName": "camera"}'),
        ("s-01 in zone basic training room", "s-01 in zone basic training room"),
    ],
)
def test_secrets_in_logs_are_removed(logged: str, cleaned: str) -> None:
    assert without_secrets(logged) == cleaned


def test_the_last_applied_configuration_is_removed() -> None:
    applied = json.dumps({"env": [{"name": "EMBEREYE_TOKEN", "value": PASSWORD}]})
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied, "note": "visible"}
    assert json.loads(concealed({"annotations": annotations})) == {"annotations": {"note": "visible"}}


def test_urls_in_packed_files_are_reduced_to_host_and_port() -> None:
    assignment = json.dumps({"cameras": [{"id": "c-1", "source": f"rtsp://admin:{PASSWORD}@cam-1:554/live"}]})
    packed = base64.b64encode(gzip.compress(assignment.encode())).decode()
    unreadable = base64.b64encode(PASSWORD.encode()).decode()
    manifest = {"kind": "ConfigMap", "binaryData": {"yard-cameras-0.json.gz": packed, "odd": unreadable}}
    printed = json.loads(concealed(manifest))
    assert printed == {
        "kind": "ConfigMap",
        "data": {"yard-cameras-0.json": '{"cameras": [{"id": "c-1", "source": "rtsp://cam-1:554"}]}'},
    }


def read(path: Path) -> dict[str, str]:
    """The texts in the archive by their names below its folder."""
    with tarfile.open(path) as archive:
        return {
            member.name.partition("/")[2]: file.read().decode()
            for member in archive.getmembers()
            if (file := archive.extractfile(member))
        }


@pytest.mark.apiserver
def test_a_report_has_fleets_and_no_password(
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
    printed = capsys.readouterr()
    assert "Read it before you send it" in printed.out
    assert f"no pod of EmberEye is in namespace {namespace}" in printed.err
    files = read(path)
    assert json.loads(files["objects/SensorFleet.json"])[0]["metadata"]["name"] == "hall"
    assert (
        json.loads(files["objects/CameraFleet.json"])[0]["spec"]["cameras"][0]["source"] == "rtsp://camera.example:554"
    )
    assert PASSWORD not in "".join(files.values())
    assert "Secret" not in "".join(files)


class SlowServer:
    """An API server that is too slow to list events and to send one container's log."""

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


async def test_a_slow_api_server_leaves_a_gap_that_the_report_lists(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        await _Report(SlowServer(), archive, "report").collect("site", 10)  # type: ignore[arg-type]
    files = read(path)
    assert files["missing.txt"] == "Event: ReadTimeout\nthe log of site/hall-0 slow: ReadTimeout\n"
    assert files["logs/site/hall-0/slow.txt"] == "first line\n"
    assert files["logs/site/hall-0/shard.txt"] == "first line\nlast line\n"


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}],"
        " users: [{name: u, user: {}}], contexts: [{name: a, context: {cluster: a, user: u}}]}"
    )
    path = tmp_path / "nowhere" / "report.tar.gz"
    assert plugin.main(["report", "--kubeconfig", str(config), "--to", str(path)]) == 2
    assert f"{path} cannot be written" in capsys.readouterr().err
