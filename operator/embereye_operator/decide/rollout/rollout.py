"""Which shards may take a changed pod now: of a fleet one at a time, and only when the fleet's turn has come."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embereye.units import SECOND
from embereye.v1.shard_pb2 import ShardStatus
from embereye_operator.api.fleets import Fleet
from embereye_operator.api.schema import Manifest
from embereye_operator.decide.manifests.compare import differences
from embereye_operator.decide.manifests.deployment import ANNOTATION_REPLACES
from embereye_operator.decide.ownership.applied import annotated, hashed
from embereye_operator.decide.rollout.turns import QUESTIONS, Turns
from embereye_operator.decide.snapshot import Identity

ANNOTATION_ROLLOUT = "embereye.dev/rollout"  # of a fleet, "paused": no more shards take a changed pod
ANNOTATION_POD = "embereye.dev/pod"  # of a shard's Deployment: a hash of the pod that was asked for
LIMIT = 180 * SECOND  # for a shard to be ready and watching again; then its roll-out has failed


def target_image(fleet: Fleet, image: str) -> str:
    """The image that the fleet's shards are to run, where the operator's is `image`."""
    if fleet.spec.image:
        return fleet.spec.image
    if not fleet.spec.version:
        return image
    repository = image.partition("@")[0]
    name = repository.rpartition("/")[2]
    return f"{repository.removesuffix(name)}{name.partition(':')[0]}:{fleet.spec.version}"


def image_of(deployment: Mapping[str, Any]) -> str:
    """The image that a shard's Deployment asks for; empty where there is none."""
    containers = _template(deployment).get("spec", {}).get("containers") or ()
    return str(next((entry.get("image", "") for entry in containers if entry.get("name") == "shard"), ""))


def with_pod(deployment: Manifest) -> Manifest:
    """`deployment` with a hash of its pod: what it does not ask for any more is told by that alone."""
    return annotated(deployment, ANNOTATION_POD, _pod_hash(deployment))


def _pod_hash(deployment: Mapping[str, Any]) -> str:
    return hashed(_unmoved(_template(deployment)))


def _rolls(desired: Manifest, observed: Mapping[str, Any], memory: "RolloutMemory") -> bool:
    """Whether applying `desired` makes a new pod, for another reason than that its node is left."""
    asked = (observed["metadata"].get("annotations") or {}).get(ANNOTATION_POD)
    if asked and asked != _pod_hash(desired):
        return True
    return bool(differences(_unmoved(_template(memory.expected(desired))), _unmoved(_template(observed))))


def is_rolled(deployment: Mapping[str, Any]) -> bool:
    """Whether the pod that a Deployment asks for runs, and no other one does."""
    status, metadata = deployment.get("status") or {}, deployment["metadata"]
    known = status.get("observedGeneration", metadata.get("generation", 0)) >= metadata.get("generation", 0)
    updated = status.get("updatedReplicas", status.get("availableReplicas", 0))
    return known and min(updated, status.get("availableReplicas", 0)) > 0 and not status.get("unavailableReplicas", 0)


def _is_replaced(deployment: Mapping[str, Any]) -> bool:
    """Whether the pod before goes on until the one that is asked for runs."""
    return not is_rolled(deployment) and (deployment.get("status") or {}).get("availableReplicas", 0) > 0


def has_failed(deployment: Mapping[str, Any]) -> bool:
    """Whether Kubernetes has given up waiting for the pod."""
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return any(entry.get("type") == "Progressing" and entry.get("status") == "False" for entry in conditions)


def _template(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment.get("spec", {}).get("template", {})
    return found


def _unmoved(template: Mapping[str, Any]) -> Manifest:
    """`template` without what a move from one node to another changes."""
    metadata = dict(template.get("metadata") or {})
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != ANNOTATION_REPLACES}
    spec = {key: value for key, value in (template.get("spec") or {}).items() if key != "affinity"}
    return {**template, "metadata": metadata, "spec": spec}


@dataclass
class RolloutMemory:
    """Of one fleet, between its passes."""

    since: int = 0  # when one of `taken` was first seen not well; 0: all are
    dark: frozenset[str] = frozenset()  # devices that were dark before: they are not waited for
    held: tuple[str, ...] = ()  # shards that keep their pod for now
    # Shards that ran as they took a changed pod → since when they are well with it; 0: they are not yet. For others,
    # whose pods did not run anyway, nobody waits.
    taken: dict[str, int] = field(default_factory=dict)
    looked: bool = False  # whether the fleet has been seen: another operator may have begun
    # Deployment → the pod that was asked for, and what admission made of it where that is something else: requests that
    # are raised, an image that is led to a mirror.
    admitted: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=dict)

    def admits(self, deployment: Manifest, stored: Manifest) -> None:
        """Note what has become of `deployment` as it was written."""
        name, asked, made = deployment["metadata"]["name"], _template(deployment), _template(stored)
        if differences(asked, made):
            self.admitted[name] = copy.deepcopy((asked, made))
        else:
            self.admitted.pop(name, None)

    def expected(self, deployment: Manifest) -> Manifest:
        """`deployment` as it is there once it is written, as far as that is known."""
        asked, made = self.admitted.get(deployment["metadata"]["name"], ({}, {}))
        if asked != _template(deployment):
            return deployment
        return {**deployment, "spec": {**deployment["spec"], "template": made}}

    def judge(self, there: Mapping[str, Mapping[str, Any]], whys: Mapping[str, str], now: int) -> Mapping[str, str]:
        """Those that others wait for, of shards that are changed → `whys` they are not well, empty where they are.

        One that has been well for LIMIT has nothing to prove any more.
        """
        unwell = {name: why for name, why in whys.items() if why}
        if not self.looked:
            self.looked = True
            self.taken = {name: 0 for name in unwell if _is_replaced(there[name])}
        proven = {name for name, since in self.taken.items() if since and now - since > LIMIT}
        self.taken = {
            name: 0 if name in unwell else since or now
            for name, since in self.taken.items()
            if name in there and name not in proven
        }
        return {name: why for name, why in unwell.items() if name in self.taken}

    @property
    def is_on(self) -> bool:
        """Whether anything is still to come of it."""
        return bool(self.held or self.since)


@dataclass(frozen=True)
class Rollout:
    """What a pass may do about shards whose pod is to change."""

    image: str
    held: tuple[str, ...] = ()  # they keep what they run
    waits: str = ""  # for what; empty: nothing is held
    failed: str = ""  # why it does not go on by itself
    before: str = ""  # what shards ran until then; empty: another pod, but the same image
    images: Mapping[str, str] = field(default_factory=dict)  # shards that are new → what the others still run


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
    """Which of the fleet's shards keep their pod for now; `desired` are all its children, `image` the operator's.

    A shard whose pod does not run has nothing to lose, and is never held. `memory` is brought up to date.
    """
    target = target_image(fleet, image)
    wanted = {child["metadata"]["name"]: child for child in desired if child["kind"] == "Deployment"}
    there = {name: children[key] for name in wanted if (key := ("Deployment", name)) in children}
    memory.admitted = {name: pod for name, pod in memory.admitted.items() if name in wanted}
    pending = [name for name, found in there.items() if _rolls(wanted[name], found, memory)]
    changed = sorted(there.keys() - set(pending))
    whys = {name: _why_not_well(name, there[name], statuses.get(name), memory, turns) for name in changed}
    sick = memory.judge(there, whys, now)
    memory.since = (memory.since or now) if sick else 0
    gate = _gate(turns, fleet, image, now)
    if gate:
        if sick:
            gate.is_on(fleet.key)
        elif not pending:
            gate.ended(fleet.key, now, proven=bool(changed) and not any(whys.values()))
    failed = ""
    if sick and (now - memory.since > LIMIT or any(has_failed(there[name]) for name in sick)):
        failed = f"{fleet.key}: {next(iter(sick.values()))} with {target}"
        if gate and gate.halt_on:
            gate.halts(fleet.key, failed)
    held: list[str] = []
    waits = ""
    if safe := [name for name in pending if is_rolled(there[name])]:
        new_image = any(image_of(there[name]) != target for name in safe)
        if fleet.annotations.get(ANNOTATION_ROLLOUT) == "paused":
            waits = f"it is paused: kubectl embereye rollout resume {fleet.name}"
        elif sick:
            waits = next(iter(sick.values()))
        elif gate and new_image:
            waits = gate.why_not(fleet.key, now)
        held = safe if waits or len(safe) < len(pending) else safe[1:]
        if held and not waits:
            waits = f"{next(name for name in pending if name not in held)} goes first"
        memory.taken |= dict.fromkeys(set(safe).difference(held), 0)
        if held and not sick:
            memory.dark = frozenset(_dark(statuses))
    memory.held = tuple(held)
    running = image_of(there[held[0]]) if held else ""
    images = {name: running for name in wanted if name not in there} if running else {}
    before = next((found for name in pending if (found := image_of(there[name])) != target), "")
    return Rollout(target, tuple(held), waits, failed, before, images)


def _gate(turns: Turns | None, fleet: Fleet, image: str, now: int) -> Turns | None:
    """`turns` where the fleet takes part; who chooses another image has chosen the fleet, too."""
    if turns is None:
        return None
    if target_image(fleet, image) != image:
        turns.release(fleet.key)
        return None
    turns.look(image, now)
    return turns


def _dark(statuses: Mapping[str, ShardStatus | None]) -> set[str]:
    return {device.id for status in statuses.values() if status for device in status.devices if not device.covered}


def _why_not_well(
    name: str, deployment: Mapping[str, Any], status: ShardStatus | None, memory: RolloutMemory, turns: Turns | None
) -> str:
    """Why the next shard has to wait for this one; empty where it has not."""
    questions = (turns.halt_on if turns else QUESTIONS) or QUESTIONS[:1]
    if "Ready" in questions and (not is_rolled(deployment) or status is None or not status.ready):
        return f"{name} is not ready"
    if "Covered" in questions and status is not None:
        dark = [device.id for device in status.devices if not device.covered and device.id not in memory.dark]
        if dark and memory.held:
            return f"{name} does not watch {', '.join(dark[:3])}"
    return ""
