"""Self-tests: the values of the chart become the file and the option of the hub."""

import json
from pathlib import Path

import pytest
from harness.cluster.chart import render
from harness.need import HELM

from embereye.addons.selftest.options import ModbusSwitch, read_selftest

pytestmark = pytest.mark.needs(HELM)
LAMP = {
    "name": "lamp", "fleet": "default/cameras/yard", "device": "gate", "brightness": 10,
    "region": {"x": 0.4, "y": 0.1, "width": 0.1, "height": 0.1}, "modbus": {"host": "10.0.0.7", "coil": 3},
}  # fmt: skip
VALUES = ("--set-json", f"hub.selftest.config={json.dumps({'tests': [LAMP]})}")


def test_the_hub_gets_the_declared_file(tmp_path: Path) -> None:
    manifests = render(*VALUES)
    (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    pod = hub["spec"]["template"]["spec"]
    assert "--selftest=/etc/embereye/addons/selftest.yaml" in pod["containers"][0]["args"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "addons")
    (declared,) = (m for m in manifests if m["metadata"]["name"] == volume["configMap"]["name"])
    file = tmp_path / "selftest.yaml"
    file.write_text(declared["data"]["selftest.yaml"])
    assert read_selftest(file).tests["lamp"].switch == ModbusSwitch("10.0.0.7", 3)
