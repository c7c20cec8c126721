"""`kubectl embereye report`: everything that helps, nothing that is secret."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from harness.servers.apiserver import ApiServer

from embereye_cli import plugin
from embereye_cli.cluster.report import concealed, without_addresses

from ..processes.test_operator import create, sensor_fleet

PASSWORD = "hunter2"


def test_of_urls_host_and_port_alone_are_kept() -> None:
    line = (
        f'dialling rtsp://admin:{PASSWORD}@cam-1:554/live, then "http://cam-2:80/user=admin_password={PASSWORD}?x=1"\n'
    )
    assert without_addresses(line) == 'dialling rtsp://cam-1:554 then "http://cam-2:80"\n'


def test_values_of_variables_that_are_secret_are_left_out() -> None:
    document = {"env": [{"name": "EMBEREYE_TOKEN", "value": PASSWORD}, {"name": "LEVEL", "value": "INFO"}]}
    assert json.loads(concealed(document)) == {
        "env": [{"name": "EMBEREYE_TOKEN", "value": "…"}, {"name": "LEVEL", "value": "INFO"}]
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
    assert "Look at it before you send it" in told.out
    assert f"no pod of ours was found in namespace {namespace}" in told.err
    found = read(path)
    assert json.loads(found["objects/SensorFleet.json"])[0]["metadata"]["name"] == "hall"
    assert (
        json.loads(found["objects/CameraFleet.json"])[0]["spec"]["cameras"][0]["source"] == "rtsp://camera.example:554"
    )
    assert PASSWORD not in "".join(found.values())
    assert "Secret" not in "".join(found)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}],"
        " users: [{name: u, user: {}}], contexts: [{name: a, context: {cluster: a, user: u}}]}"
    )
    path = tmp_path / "nowhere" / "report.tar.gz"
    assert plugin.main(["report", "--kubeconfig", str(config), "--to", str(path)]) == 2
    assert f"{path} cannot be written" in capsys.readouterr().err
