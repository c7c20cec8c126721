"""The chart's values become the file and the option of the hub."""

import json
from argparse import ArgumentParser
from pathlib import Path

import yaml
from harness.cluster.chart import render
from harness.need import ROOT
from jsonschema import Draft202012Validator

from embereye.addons.notify.config import parse_config
from embereye.addons.notify.hub import OPTIONS

from .test_config import FULL

CONFIG = {
    "routes": [{"name": "guard", "urlFile": "/etc/embereye/notify/secrets/guard"}],
    "escalations": [{"name": "fire", "for": "alarm", "steps": [{"routes": "guard"}]}],
}


def test_the_hub_gets_its_file_and_the_secret() -> None:
    manifests = render("--set-json", f"hub.notify.config={json.dumps(CONFIG)}",
                       "--set", "hub.notify.secrets.existingSecret=phones")  # fmt: skip
    (hub,) = (m for m in manifests if m["kind"] == "Deployment" and m["metadata"]["name"].endswith("-hub"))
    pod = hub["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    parser = ArgumentParser()
    OPTIONS.add_to(parser)
    options = parser.parse_args([word for word in container["args"] if word.startswith("--notify")])
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert options.notify == mounts["addons"] / "notify.yaml"
    (file,) = (m["data"]["notify.yaml"] for m in manifests if m["kind"] == "ConfigMap" and "notify.yaml" in m["data"])
    read = parse_config(file, options.notify.parent)
    assert read.routes["guard"].url_file == mounts["notify-secrets"] / "guard"
    (secret,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "notify-secrets")
    assert (secret["secretName"], secret["optional"]) == ("phones", True)


def test_the_charts_schema_accepts_what_the_hub_reads_and_refuses_typing_errors() -> None:
    schema = json.loads((ROOT / "charts/embereye/values.schema.json").read_text())
    validator = Draft202012Validator({"$ref": "#/definitions/notify", "definitions": schema["definitions"]})
    validator.validate(yaml.safe_load(FULL))
    validator.validate(CONFIG)
    assert not validator.is_valid(yaml.safe_load(FULL.replace("urlFile:", "urlfile:")))
    calendar = {"urlFile": "calendar", "people": {"Ada": "guard"}, "staleAfter": "2h"}
    duty = {"name": "on-duty", "calendar": calendar, "otherwise": "guard"}
    parse_config(json.dumps({**CONFIG, "duty": [duty]}))
    validator.validate({**CONFIG, "duty": [duty]})
    assert not validator.is_valid({**CONFIG, "duty": [{"name": "on-duty", "calendar": calendar}]})
    assert not validator.is_valid(yaml.safe_load(FULL.replace("after: 2m", "after: 2")))
