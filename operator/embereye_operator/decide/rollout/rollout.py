"""The roll-out within one fleet: one shard at a time gets a changed pod, and only during the fleet's turn.

`plan_rollout` compares existing Deployments with wanted ones and returns the shards that stay on their pod for now. A
shard that got a changed pod must become ready and cover its devices before the next one follows. If it does not within
LIMIT, the roll-out has failed. `RolloutMemory` remembers the shards that were updated and are not proven yet.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from embereye.units import SECOND
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.api.status import DIFFERS, FleetStatus
from embereye_operator.decide.manifests.compare import differences
from embereye_operator.decide.manifests.deployment import ANNOTATION_REPLACES
from embereye_operator.decide.ownership.applied import annotated, hashed
from embereye_operator.decide.rollout.turns import DEFAULT_QUESTIONS, Turns
from embereye_operator.decide.snapshot import Identity

ANNOTATION_ROLLOUT = "embereye.dev/rollout"  # on a fleet; "paused" stops further shards from getting a changed pod
ANNOTATION_POD = "embereye.dev/pod"  # on a shard's Deployment: a hash of the requested pod template
LIMIT = 180 * SECOND  # until a shard must be ready and watching again; then its roll-out has failed


def target_image(fleet: Fleet, image: str) -> str:
    """Return the image for the fleet's shards; `image` is the operator's."""
    if fleet.spec.image:
        return fleet.spec.image
    if not fleet.spec.version:
        return image
    repository = image.partition("@")[0]
    name = repository.rpartition("/")[2]
    return f"{repository.removesuffix(name)}{name.partition(':')[0]}:{fleet.spec.version}"


def image_of(deployment: Mapping[str, Any]) -> str:
    """Return the image of a shard's Deployment; empty if it has none."""
    containers = _template(deployment).get("spec", {}).get("containers") or ()
    return str(next((entry.get("image", "") for entry in containers if entry.get("name") == "shard"), ""))


def with_pod(deployment: Manifest) -> Manifest:
    """Return `deployment` with a hash of its pod, which alone reveals fields that were removed."""
    return annotated(deployment, ANNOTATION_POD, _pod_hash(deployment))


def _pod_hash(deployment: Mapping[str, Any]) -> str:
    return hashed(_unmoved(_template(deployment)))


def _has_changed_pod(desired: Manifest, observed: Mapping[str, Any], memory: "RolloutMemory") -> bool:
    """True if applying `desired` creates a new pod for another reason than leaving its node."""
    stored_hash = (observed["metadata"].get("annotations") or {}).get(ANNOTATION_POD)
    if stored_hash and stored_hash != _pod_hash(desired):
        return True
    return bool(differences(_unmoved(_template(memory.expected(desired))), _unmoved(_template(observed))))


def is_rolled(deployment: Mapping[str, Any]) -> bool:
    """True if the requested pod runs, and no other one does."""
    status, metadata = deployment.get("status") or {}, deployment["metadata"]
    known = status.get("observedGeneration", metadata.get("generation", 0)) >= metadata.get("generation", 0)
    updated = status.get("updatedReplicas", status.get("availableReplicas", 0))
    return known and min(updated, status.get("availableReplicas", 0)) > 0 and not status.get("unavailableReplicas", 0)


def _is_being_replaced(deployment: Mapping[str, Any]) -> bool:
    """True if the previous pod still runs because the requested one does not run yet."""
    return not is_rolled(deployment) and (deployment.get("status") or {}).get("availableReplicas", 0) > 0


def has_failed(deployment: Mapping[str, Any]) -> bool:
    """True if Kubernetes has given up waiting for the pod."""
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return any(entry.get("type") == "Progressing" and entry.get("status") == "False" for entry in conditions)


def _template(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    template: Mapping[str, Any] = deployment.get("spec", {}).get("template", {})
    return template


def _unmoved(template: Mapping[str, Any]) -> Manifest:
    """Return `template` without the fields that a move to another node changes."""
    metadata = dict(template.get("metadata") or {})
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != ANNOTATION_REPLACES}
    spec = {key: value for key, value in (template.get("spec") or {}).items() if key != "affinity"}
    return {**template, "metadata": metadata, "spec": spec}


@dataclass
class RolloutMemory:
    """The roll-out state of one fleet between its passes."""

    since: int = 0  # when one of `updated` was first seen unhealthy; 0: all are healthy
    dark: frozenset[str] = frozenset()  # devices that were dark before the roll-out, and may stay dark
    pending: tuple[str, ...] = ()  # shards that stay on their pod for now
    # Shards that ran when they got a changed pod → since when they are healthy with it; 0: not yet. Shards whose pods
    # did not run before block no others.
    updated: dict[str, int] = field(default_factory=dict)
    unrolled: tuple[str, ...] = ()  # shards whose requested pod does not run, whether or not a previous one does
    waiting: Mapping[str, str] = field(default_factory=dict)  # shard → why its pod does not run
    differs: str = ""  # why the fleet's candidate must not be rolled out; empty: it may
    fenced: frozenset[str] = frozenset()  # uids of pods on lost nodes, since whose loss the fleet has a new epoch
    observed: bool = False  # the fleet was seen once; another operator may have begun its roll-out
    # Deployment → the requested pod template, and the one that admission made of it if they differ: raised requests, an
    # image redirected to a mirror.
    admitted: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=dict)

    def note_admitted(self, deployment: Manifest, stored: Manifest) -> None:
        """Record the difference between `deployment` as written and as stored."""
        name, requested, admitted = deployment["metadata"]["name"], _template(deployment), _template(stored)
        if differences(requested, admitted):
            self.admitted[name] = copy.deepcopy((requested, admitted))
        else:
            self.admitted.pop(name, None)

    def expected(self, deployment: Manifest) -> Manifest:
        """Return `deployment` as it will be stored, as far as known."""
        requested, admitted = self.admitted.get(deployment["metadata"]["name"], ({}, {}))
        if requested != _template(deployment):
            return deployment
        return {**deployment, "spec": {**deployment["spec"], "template": admitted}}

    def judge(
        self, existing: Mapping[str, Mapping[str, Any]], problems: Mapping[str, str], now: int
    ) -> Mapping[str, str]:
        """Return the updated shards that block the others, with their problems.

        `problems` maps each shard with the changed pod to its problem, '' if healthy. A shard that has been healthy for
        LIMIT is proven and blocks no others.
        """
        unhealthy = {name: problem for name, problem in problems.items() if problem}
        if not self.observed:
            self.observed = True
            self.updated = {name: 0 for name in unhealthy if _is_being_replaced(existing[name])}
        proven = {name for name, since in self.updated.items() if since and now - since > LIMIT}
        self.updated = {
            name: 0 if name in unhealthy else since or now
            for name, since in self.updated.items()
            if name in existing and name not in proven
        }
        return {name: problem for name, problem in unhealthy.items() if name in self.updated}

    @property
    def is_active(self) -> bool:
        """True if the roll-out is not complete."""
        return bool(self.pending or self.since)


@dataclass(frozen=True)
class Rollout:
    """The plan of a pass for shards with a changed pod."""

    image: str
    memory: RolloutMemory  # for the next pass
    turns: Turns | None  # after this pass
    pending: tuple[str, ...] = ()  # shards that stay on their pod for now
    waits: str = ""  # why they wait; empty without pending shards
    failed: str = ""  # why it does not continue automatically
    before: str = ""  # the shards' previous image; empty if only other fields of the pod change
    images: Mapping[str, str] = field(default_factory=dict)  # new shards → the image that the others still run


def plan_rollout(
    fleet: Fleet,
    desired: Sequence[Manifest],
    children: Mapping[Identity, Manifest],
    statuses: Mapping[str, ShardStatus | None],
    memory: RolloutMemory,
    turns: Turns | None,
    *,
    image: str,
    now: int,
) -> Rollout:
    """Choose the shards that stay on their pod for now; `desired` are all the fleet's children, `image` the operator's.

    A shard whose pod does not run has nothing to lose, and never waits.
    """
    memory, turns = replace(memory), copy.deepcopy(turns)
    target = target_image(fleet, image)
    wanted = {child["metadata"]["name"]: child for child in desired if child["kind"] == "Deployment"}
    existing = {name: children[key] for name in wanted if (key := ("Deployment", name)) in children}
    memory.admitted = {name: pod for name, pod in memory.admitted.items() if name in wanted}
    outdated = [name for name, child in existing.items() if _has_changed_pod(wanted[name], child, memory)]
    changed = sorted(existing.keys() - set(outdated))
    problems = {name: _health_problem(name, existing[name], statuses.get(name), memory, turns) for name in changed}
    memory.unrolled = tuple(name for name in existing if not is_rolled(existing[name]))
    unhealthy = memory.judge(existing, problems, now)
    memory.since = (memory.since or now) if unhealthy else 0
    gate = turns if turns and turns.enter(fleet.key, image, now, takes_part=target == image) else None
    if gate and unhealthy:
        gate.note_rolling(fleet.key)
    elif gate and not outdated:
        gate.note_ended(fleet.key, now, proven=bool(changed) and not any(problems.values()))
    failed = ""
    if unhealthy and (now - memory.since > LIMIT or any(has_failed(existing[name]) for name in unhealthy)):
        failed = f"{fleet.key}: {next(iter(unhealthy.values()))} with {target}"
    if gate and gate.halt_on and (why := failed or memory.differs):
        gate.note_failure(fleet.key, why)
    pending, waits = list[str](), ""
    if running := [name for name in outdated if is_rolled(existing[name])]:
        waits = next(iter(unhealthy.values()), memory.differs)
        if fleet.annotations.get(ANNOTATION_ROLLOUT) == "paused":
            waits = f"it is paused: kubectl embereye rollout resume {fleet.name}"
        elif gate and not waits and any(image_of(existing[name]) != target for name in running):
            waits = gate.why_not(fleet.key, now)
        pending = running if waits or len(running) < len(outdated) else running[1:]
        if pending and not waits:
            waits = f"{next(name for name in outdated if name not in pending)} goes first"
        memory.updated |= dict.fromkeys(set(running).difference(pending), 0)
        if pending and not unhealthy:
            memory.dark = frozenset(_dark(statuses))
    memory.pending = tuple(pending)
    previous = image_of(existing[pending[0]]) if pending else ""
    images = {name: previous for name in wanted if name not in existing} if previous else {}
    before = next((image for name in outdated if (image := image_of(existing[name])) != target), "")
    return Rollout(target, memory, turns, memory.pending, waits, failed, before, images)


def differing_reason(fleet: Fleet, status: FleetStatus, turns: Turns | None) -> str:
    """Return why the fleet's candidate halts roll-outs, by its latest `status`; '' if it does not."""
    condition = status.condition(DIFFERS) if turns and "Detection" in turns.halt_on else None
    return f"{fleet.key}: {condition.message}" if condition and condition.status == "True" else ""


def _dark(statuses: Mapping[str, ShardStatus | None]) -> set[str]:
    return {device.id for status in statuses.values() if status for device in status.devices if not device.covered}


def _health_problem(
    name: str, deployment: Mapping[str, Any], status: ShardStatus | None, memory: RolloutMemory, turns: Turns | None
) -> str:
    """Return the reason why the next shard has to wait for this one; '' if there is none."""
    questions = (turns.halt_on if turns else DEFAULT_QUESTIONS) or DEFAULT_QUESTIONS[:1]
    if "Ready" in questions and (not is_rolled(deployment) or status is None or not status.ready):
        why = memory.waiting.get(name)
        return f"{name} is not ready: {why}" if why else f"{name} is not ready"
    if "Covered" in questions and status is not None:
        dark = [device.id for device in status.devices if not device.covered and device.id not in memory.dark]
        if dark and memory.pending:
            return f"{name} does not watch {', '.join(dark[:3])}"
    return ""
