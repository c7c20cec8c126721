"""Modbus: the values of the chart become the file, the option and the port of the hub."""

from pathlib import Path

import pytest
from harness.cluster.chart import render
from harness.need import HELM

from embereye.addons.modbus.options import read_modbus

pytestmark = pytest.mark.needs(HELM)
VALUES = (
    "--set", "hub.modbus.config.serve.port=5020", "--set", "hub.modbus.config.serve.rules[0].coil=0",
    "--set", "hub.modbus.config.serve.rules[0].zones={hall}", "--set", "hub.modbus.port=5020",
)  # fmt: skip


def test_the_hub_gets_the_declared_file_and_the_port(tmp_path: Path) -> None:
    manifests = render(*VALUES)
    (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    pod = hub["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--modbus=/etc/embereye/addons/modbus.yaml" in container["args"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "addons")
    (declared,) = (m for m in manifests if m["metadata"]["name"] == volume["configMap"]["name"])
    file = tmp_path / "modbus.yaml"
    file.write_text(declared["data"]["modbus.yaml"])
    serve = read_modbus(file).serve
    assert serve is not None
    assert serve.port == 5020
    (service,) = (m for m in manifests if m["kind"] == "Service" and m["metadata"]["name"].endswith("-hub"))
    assert {"name": "modbus", "port": 5020, "targetPort": "modbus"} in service["spec"]["ports"]
    assert "modbus" not in str([m for m in render() if m["kind"] in ("Deployment", "Service")])
