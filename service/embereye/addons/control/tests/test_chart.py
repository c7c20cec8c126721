"""Rules for actuators: the values of the chart become the file and the option of the hub."""

from pathlib import Path

import pytest
from harness.cluster.chart import render
from harness.need import HELM

from embereye.addons.control.options import read_actuators

pytestmark = pytest.mark.needs(HELM)
RULE = "hub.actuators.config.actuators[0]"
VALUES = (
    "--set", f"{RULE}.name=damper", "--set", f"{RULE}.rules[0].output=flap", "--set", f"{RULE}.rules[0].zones={{hall}}",
)  # fmt: skip


def test_the_hub_gets_the_declared_file(tmp_path: Path) -> None:
    manifests = render(*VALUES)
    (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    pod = hub["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--actuators=/etc/embereye/addons/actuators.yaml" in container["args"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "addons")
    (declared,) = (m for m in manifests if m["metadata"]["name"] == volume["configMap"]["name"])
    file = tmp_path / "actuators.yaml"
    file.write_text(declared["data"]["actuators.yaml"])
    (actuator,) = read_actuators(file)
    assert (actuator.name, actuator.rules[0].zones) == ("damper", ("hall",))
