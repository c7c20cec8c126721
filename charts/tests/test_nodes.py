"""The parts of the chart that matter when a node is drained or lost."""

import copy
import json
import os
import subprocess
from typing import Any

import pytest
from harness.cluster.chart import render
from harness.cluster.site import IMAGE
from harness.need import ROOT

ABSENT = {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 5}


def pod(component: str, *values: str) -> Any:
    for manifest in render(*values):
        if manifest["kind"] == "Deployment" and manifest["metadata"]["name"].endswith(component):
            return copy.deepcopy(manifest["spec"]["template"]["spec"])
    raise AssertionError(f"no Deployment of the {component}")


@pytest.mark.parametrize("component", ["hub", "operator"])
def test_pods_do_not_wait_five_minutes_for_a_lost_node(component: str) -> None:
    tolerations = pod(component)["tolerations"]
    assert {entry["key"]: entry["tolerationSeconds"] for entry in tolerations} == ABSENT
    assert {(entry["operator"], entry["effect"]) for entry in tolerations} == {("Exists", "NoExecute")}


@pytest.mark.parametrize("component", ["hub", "operator"])
def test_tolerations_of_lost_nodes_in_the_values_take_precedence(component: str) -> None:
    key = "node.kubernetes.io/unreachable"
    prefix = f"{component}.tolerations[0]"
    settings = (f"{prefix}.key={key}", f"{prefix}.operator=Exists", f"{prefix}.tolerationSeconds=600")
    tolerations = pod(component, *(argument for value in settings for argument in ("--set", value)))["tolerations"]
    assert {entry["key"]: entry["tolerationSeconds"] for entry in tolerations} == {**ABSENT, key: 600}
    assert pod(component, "--set", f"{prefix}.operator=Exists")["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize("component", ["hub", "operator"])
@pytest.mark.parametrize("key", ["", "node.kubernetes.io/unreachable"])
def test_tolerations_of_other_taints_leave_those_of_lost_nodes(component: str, key: str) -> None:
    toleration = {"operator": "Exists", "effect": "NoSchedule", **({"key": key} if key else {})}
    tolerations = pod(component, "--set-json", f"{component}.tolerations={json.dumps([toleration])}")["tolerations"]
    assert toleration in tolerations
    assert {entry["key"]: entry["tolerationSeconds"] for entry in tolerations if entry != toleration} == ABSENT


def test_a_new_hub_avoids_the_node_of_one_that_has_not_ended() -> None:
    (term,) = pod("hub")["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "hub"


def test_operators_are_spread_over_nodes() -> None:
    (spread,) = pod("operator")["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")
    assert spread["nodeTaintsPolicy"] == "Honor", "a tainted node must not make the second operator wait"
    assert spread["matchLabelKeys"] == ["pod-template-hash"], "the pods of the previous version do not count"


def test_the_operator_can_delete_pods_in_the_hubs_namespace_only() -> None:
    deleting = [
        manifest["kind"]
        for manifest in render()
        for rule in manifest.get("rules") or ()
        if "pods" in rule["resources"] and "delete" in rule["verbs"]
    ]
    assert deleting == ["Role"]


def test_the_image_is_the_one_that_make_builds() -> None:
    (image,) = {container["image"] for part in ("hub", "operator") for container in pod(part)["containers"]}
    assert image == IMAGE
    # `make test` runs this too: a make within make would print its folder.
    command = ["make", "--no-print-directory", "--dry-run", "image"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert made.stdout.split()[-1] == image
