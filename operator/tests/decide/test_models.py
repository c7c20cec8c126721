"""A user's model, from the manifest to the shard and back into the status."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from embereye.levels import Kind
from embereye.v1.shard_pb2 import CameraSettings, Model
from embereye_operator.api.fleets import Fleet, FleetError, parse_fleet
from embereye_operator.decide.manifests.deployment import build_deployment
from embereye_operator.decide.placement.assignments import build_candidate, build_settings
from embereye_operator.decide.status import LASTING_SECONDS
from embereye_operator.runtime.local.processes import Supervisor
from embereye_operator.runtime.local.runtime import LocalRuntime

from ..api.test_schema import camera, manifest
from ..fakes import SETTINGS, World
from ..test_reconcile import condition, fleet_of

ROOT = Path(__file__).parents[3]
CLASSES = [{"index": 0, "kind": "flame"}]


def fleet(**model: Any) -> Fleet:
    given = {"decoder": "yolov8", "classes": CLASSES} | model
    return parse_fleet(manifest("CameraFleet", {"cameras": [camera()], "detection": {"model": given}}, uid="u"))


def settings_of(fleet: Fleet) -> CameraSettings:
    settings = build_settings(fleet.spec)
    assert isinstance(settings, CameraSettings)
    return settings


def documented() -> dict[str, Any]:
    text = (ROOT / "docs/how-to/models.md").read_text()
    manifest: dict[str, Any] = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    return manifest


def test_the_documented_manifest_is_valid_and_has_the_documented_meaning() -> None:
    model = settings_of(parse_fleet(documented())).model
    assert (model.mounted, model.path, model.width) == ("fire-v3.onnx", "", 640)
    assert (model.decoder, model.runtime) == (Model.DECODER_YOLOV8, Model.RUNTIME_OPENCV)
    assert [(entry.index, entry.kind) for entry in model.classes] == [(0, Kind.FLAME), (1, Kind.SMOKE)]
    assert model.scale == pytest.approx(1 / 255)
    assert (model.every_ns, model.idle_ns, model.budget_ns, model.alarm_ns) == (10**9, 10**10, 10**9, 4 * 10**9)


def test_a_fleet_without_a_model_has_none() -> None:
    plain = parse_fleet(manifest("CameraFleet", {"cameras": [camera()]}))
    assert not settings_of(plain).HasField("model")
    assert "EMBEREYE_MODEL" not in str(build_deployment(plain, "hall-cameras-0", SETTINGS))


@pytest.mark.parametrize(
    ("place", "volume"),
    [
        ({"configMapRef": {"name": "fire", "key": "f.onnx"}}, {"configMap": {"name": "fire", "optional": True}}),
        (
            {"volumeRef": {"claimName": "models", "path": "a/f.onnx"}},
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        ),
    ],
)
def test_a_model_in_the_cluster_is_mounted_read_only_in_every_shard(place: Any, volume: Any) -> None:
    pod = build_deployment(fleet(**place), "hall-cameras-0", SETTINGS)["spec"]["template"]["spec"]
    assert pod["volumes"][-1] == {"name": "model", **volume}
    container = pod["containers"][0]
    assert container["volumeMounts"][-1] == {"name": "model", "mountPath": "/etc/embereye/model", "readOnly": True}
    assert {"name": "EMBEREYE_MODEL", "value": "/etc/embereye/model"} in container["env"]


def test_a_candidates_model_is_mounted_too_and_its_promotion_rolls_no_shard() -> None:
    def declared(promote: bool) -> Fleet:
        model: dict[str, Any] = {"decoder": "yolov8", "classes": CLASSES}
        detection = {
            "model": model | {"volumeRef": {"claimName": "models", "path": "v1.onnx"}},
            "candidate": {"promote": promote, "model": model | {"configMapRef": {"name": "v2", "key": "f.onnx"}}},
        }
        return parse_fleet(manifest("CameraFleet", {"cameras": [camera()], "detection": detection}, uid="u"))

    before, after = (build_deployment(declared(promote), "hall-cameras-0", SETTINGS) for promote in (False, True))
    assert before == after
    pod = before["spec"]["template"]["spec"]
    assert pod["volumes"][-1] == {"name": "candidate-model", "configMap": {"name": "v2", "optional": True}}
    (container,) = pod["containers"]
    folder = "/etc/embereye/candidate-model"
    assert [mount["mountPath"] for mount in container["volumeMounts"][-2:]] == ["/etc/embereye/model", folder]
    assert {"name": "EMBEREYE_CANDIDATE_MODEL", "value": folder} in container["env"]
    model = settings_of(declared(True)).model
    assert (model.mounted, model.of_candidate) == ("f.onnx", True)
    candidate = build_candidate(declared(False).spec)
    assert candidate
    assert candidate.camera.model == model


def test_a_models_path_is_passed_to_the_shard() -> None:
    assert settings_of(fleet(path="fire.onnx")).model.path == "fire.onnx"
    assert "EMBEREYE_MODEL" not in str(build_deployment(fleet(path="fire.onnx"), "hall-cameras-0", SETTINGS))


def test_on_one_machine_a_claim_is_a_separate_folder(tmp_path: Path) -> None:
    runtime = LocalRuntime(tmp_path, "127.0.0.1:1", Supervisor(tmp_path, lambda _: None))
    owner = fleet(volumeRef={"claimName": "models", "path": "f.onnx"})
    deployment = build_deployment(owner, "hall-cameras-0", SETTINGS)
    pod = deployment["spec"]["template"]["spec"]
    folders = runtime._folders(deployment["metadata"], pod, pod["containers"][0])
    assert folders["/etc/embereye/model"] == tmp_path / "volumes" / "default.models"


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({}, "detection.model: needs exactly one of path, configMapRef, volumeRef"),
        ({"path": "a", "configMapRef": {"name": "b", "key": "c"}}, "needs exactly one of"),
        ({"path": "a", "classes": []}, "classes: 0 entries are fewer than 1"),
        ({"path": "a", "decoder": "ssd"}, 'decoder: "ssd" is not one of yolov5, yolov8, classification'),
        ({"path": "a", "classes": [{"index": 0, "kind": "cat"}]}, 'kind: "cat" is not one of flame, smoke'),
        ({"volumeRef": {"claimName": "m", "path": "../etc/passwd"}}, "is not a path inside the volume"),
        ({"volumeRef": {"claimName": "m", "path": "/etc/passwd"}}, "is not a path inside the volume"),
        ({"path": "a", "input": {"mean": [1, 2]}}, "mean: 2 entries are fewer than 3"),
        ({"path": "a", "input": {"std": [1, 0, 1]}}, "std[1]: 0 is less than 0.0001"),
    ],
)
def test_an_invalid_model_is_refused_with_the_field(model: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FleetError) as caught:
        fleet(**model)
    assert sentence in str(caught.value)


async def test_devices_with_limited_detection_degrade_the_fleet_and_stay_covered() -> None:
    world = World(fleet_of(count=8))
    await world.run_until_complete()
    shard = world.runtime.shards["hall-sensors-0"]
    shard.degraded = {f"s-{number:02}": f"detection.model: a run takes {900 + number} ms" for number in range(7)}
    outcome = await world.step()
    status, reason, message = condition(outcome.status, "Degraded")
    assert (status, reason) == ("True", "DetectionDegraded")
    assert message == "s-00, s-01, s-02, s-03, s-04 and 2 more: detection.model: a run takes 900 ms"
    assert condition(outcome.status, "Covered")[0] == "True"
    await world.last(LASTING_SECONDS)
    shard.degraded = {f"s-{number:02}": f"detection.model: a run takes {950 + number} ms" for number in range(7)}
    again = await world.step()
    assert condition(again.status, "Degraded")[2] == message  # only numbers changed: that is no news
    shard.degraded = {}
    assert condition((await world.step()).status, "Degraded")[:2] == ("False", "AsExpected")
