"""Profiles: the values of the chart become the file and the option of the hub."""

from pathlib import Path

import pytest
from harness.cluster.chart import render
from harness.need import HELM

from embereye.addons.profiles.options import read_profiles

pytestmark = pytest.mark.needs(HELM)
WELDING = "hub.profiles.config.profiles[0]"
VALUES = (
    "--set", f"{WELDING}.name=welding", "--set", f"{WELDING}.zones={{hall}}", "--set", f"{WELDING}.confirmEvery=1h",
    "--set", f"{WELDING}.expected={{flame}}",
)  # fmt: skip


def test_the_hub_gets_the_declared_file(tmp_path: Path) -> None:
    manifests = render(*VALUES)
    (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    pod = hub["spec"]["template"]["spec"]
    assert "--profiles=/etc/embereye/addons/profiles.yaml" in pod["containers"][0]["args"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "addons")
    (declared,) = (m for m in manifests if m["metadata"]["name"] == volume["configMap"]["name"])
    file = tmp_path / "profiles.yaml"
    file.write_text(declared["data"]["profiles.yaml"])
    assert read_profiles(file).profiles["welding"].confirm == 60
