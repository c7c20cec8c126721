"""Make before break: a device gets a new owner before the old one releases it, despite every failure in between."""

import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from embereye.units import SECOND
from embereye.v1.shard_pb2 import Assignment, AssignResponse
from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.fleet_memory import LOST, FleetMemory
from embereye_operator.decide.intent import DRAIN_LIMIT
from embereye_operator.decide.manifests.config_map import PLACEMENT_KEY
from embereye_operator.decide.placement.handoff import MAX_PATIENCE, MIN_PATIENCE, choose_shards, patience
from embereye_operator.decide.placement.record import PlacementRecord
from embereye_operator.decide.status import LASTING_SECONDS

from ...fakes import FakeRuntime, World
from ...test_reconcile import PLACEMENT, condition, fleet_of, record

COUNT = 12


class CrashError(Exception):
    """The operator crashed here."""


class Crashing(FakeRuntime):
    """A runtime that counts writes and crashes the operator before or after write number `at`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.write_counts = 0
        self.at = 0  # 0: never
        self.after = False
        self.dark: set[str] = set()  # devices that no shard watched after some write
        self.watching = False

    async def _write(self, write: Callable[[], Awaitable[Any]]) -> Any:
        self.write_counts += 1
        if self.write_counts == self.at and not self.after:
            raise CrashError
        answer = await write()
        self.check()
        if self.write_counts == self.at:
            raise CrashError
        return answer

    def check(self) -> None:
        covered = {device.id for shard in self.shards.values() for device in shard.status().devices if device.covered}
        if self.watching:
            self.dark |= {f"s-{number:02}" for number in range(COUNT)} - covered

    async def apply(self, manifest: Any, **options: Any) -> Any:
        return await self._write(lambda: super(Crashing, self).apply(manifest, **options))

    async def delete(self, manifest: Any) -> None:
        await self._write(lambda: super(Crashing, self).delete(manifest))

    async def assign(self, fleet: Any, shard: str, assignment: Assignment) -> AssignResponse | None:
        answer: AssignResponse | None = await self._write(
            lambda: super(Crashing, self).assign(fleet, shard, assignment)
        )
        return answer

    async def write_status(self, fleet: Any, status: Any) -> None:
        await self._write(lambda: super(Crashing, self).write_status(fleet, status))


class Slow(World):
    """A world whose shards need two passes to cover a new device, like cameras that are dialled."""

    def __init__(self, manifest: Any) -> None:
        super().__init__(manifest)
        self.runtime: Crashing = Crashing(slow=2)

    def twin(self) -> "Slow":
        """Return a copy of the world."""
        copy_ = Slow(self.manifest)
        copy_.runtime, copy_.now = copy.deepcopy(self.runtime), self.now
        copy_.runtime.watching = True
        return copy_

    async def survive(self) -> int:
        """Run passes until the fleet is complete, a new operator after each crash; return the number of crashes."""
        crashes = 0
        for _ in range(40):
            try:
                outcome = await self.step()
            except CrashError:
                crashes += 1
                self.memory = FleetMemory()
                continue
            if outcome.complete and not outcome.actions:
                return crashes
        raise AssertionError("not complete after 40 passes")


async def complete(shards: int, **options: Any) -> Slow:
    world = Slow(fleet_of(COUNT, shards=shards, **options))
    await world.survive()
    return world


CHANGES = {
    "one to three": (1, 3),
    "three to one": (3, 1),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_crash_at_any_write_ends_in_the_same_state_without_dark_devices(change: str, after: bool) -> None:
    before, shards = CHANGES[change]
    start = await complete(before)
    start.manifest = fleet_of(COUNT, shards=shards)
    clean = start.twin()
    first = start.runtime.write_counts
    await clean.survive()
    total = clean.runtime.write_counts - first
    assert total >= 5
    assert clean.runtime.dark == set()
    for number in range(1, total + 1):
        world = start.twin()
        world.runtime.at, world.runtime.after = first + number, after
        crashes = await world.survive()
        assert crashes == 1, number
        assert world.runtime.dark == set(), f"crash at write {number}"
        assert set(world.runtime.objects) == set(clean.runtime.objects), number
        assert all(len(owners) == 1 for owners in world.owners().values()), number
        assert len(world.owners()) == COUNT
        assert record(world)["shards"] == record(clean)["shards"]


async def test_the_old_owner_releases_a_device_only_when_the_new_one_covers_it() -> None:
    world = await complete(1)
    world.manifest = fleet_of(COUNT, shards=2)
    await world.step()
    await world.step()
    both = [device for device, owners in world.owners().items() if len(owners) == 2]
    assert len(both) == 6
    old = world.runtime.shards["hall-sensors-0"].assignment
    assert {device.id for device in old.devices} == {f"s-{number:02}" for number in range(COUNT)}
    assert set(old.elsewhere) == set(both), "the old owner knows the new one"
    outcome = await world.step()
    assert condition(outcome.status, "Covered")[0] == "True"
    assert condition(outcome.status, "Progressing")[1] == "HandingOver"
    await world.survive()
    assert all(len(owners) == 1 for owners in world.owners().values())
    assert "moving" not in record(world)


async def test_a_silent_device_is_released_after_a_while() -> None:
    world = World(fleet_of(COUNT))
    await world.run_until_complete()
    world.manifest = fleet_of(COUNT, shards=2)
    await world.step()
    new = world.runtime.shards["hall-sensors-1"]
    new.dark = {f"s-{number:02}": "never heard" for number in range(COUNT)}
    passes = 0
    while any(len(owners) > 1 for owners in world.owners().values()) or passes < 2:
        outcome = await world.step()
        passes += 1
        assert passes < 20
    assert patience(5 * SECOND) // (2 * SECOND) <= passes <= patience(5 * SECOND) // (2 * SECOND) + 3
    assert any("have not received" in action for action in outcome.actions)


async def test_a_device_that_was_already_dark_is_not_awaited() -> None:
    world = World(fleet_of(COUNT))
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-0"].dark = {f"s-{number:02}": "never heard" for number in range(COUNT)}
    world.manifest = fleet_of(COUNT, shards=2)
    await world.step()
    await world.step()
    assert all(len(owners) == 1 for owners in world.owners().values())


async def test_a_leaving_shard_is_reused_with_the_devices_it_still_watches() -> None:
    world = await complete(2)
    before = world.owners()
    world.manifest = fleet_of(COUNT, shards=1)
    await world.step()
    assert any(len(owners) == 2 for owners in world.owners().values())
    world.manifest = fleet_of(COUNT, shards=2)
    await world.survive()
    assert world.owners() == before
    assert not [entry for entry in world.runtime.log if entry.startswith("delete")]


async def test_a_lost_shards_devices_move_to_others_and_return_with_it() -> None:
    world = World(fleet_of(COUNT, shards=3))
    await world.run_until_complete()
    world.runtime.shards["hall-sensors-2"].reachable = False
    for _ in range(LOST // (2 * SECOND)):
        await world.step()
        assert set(record(world)["devices"].values()) == {f"hall-sensors-{index}" for index in range(3)}
    outcome = await world.step()
    assert set(record(world)["devices"].values()) == {"hall-sensors-0", "hall-sensors-1"}
    assert condition(outcome.status, "Covered")[0] == "True"
    assert condition(outcome.status, "Ready")[0] == "False"
    world.runtime.shards["hall-sensors-2"].reachable = True
    await world.run_until_complete()
    assert set(record(world)["devices"].values()) == {f"hall-sensors-{index}" for index in range(3)}
    assert all(len(owners) == 1 for owners in world.owners().values())


async def test_an_operator_that_reaches_no_shard_moves_nothing() -> None:
    world = World(fleet_of(COUNT, shards=3))
    await world.run_until_complete()
    before = copy.deepcopy(world.runtime.objects[PLACEMENT]["data"])
    for shard in world.runtime.shards.values():
        shard.reachable = False
    for _ in range(10):
        await world.step()
    assert world.runtime.objects[PLACEMENT]["data"] == before


async def test_a_clock_that_is_set_back_does_not_make_a_handover_endless() -> None:
    world = await complete(1)
    world.manifest = fleet_of(COUNT, shards=2)
    await world.step()
    await world.step()
    world.now -= 3_600 * SECOND
    await world.survive()
    assert all(len(owners) == 1 for owners in world.owners().values())


async def test_objects_of_the_previous_version_are_adopted_unchanged() -> None:
    world = World(fleet_of(COUNT, shards=3))
    await world.run_until_complete()
    before = world.owners()
    stored = world.runtime.objects[PLACEMENT]["data"]
    old = json.loads(stored[PLACEMENT_KEY])
    stored[PLACEMENT_KEY] = json.dumps({key: old[key] for key in ("epoch", "members", "devices")})
    await world.run_until_complete()
    assert world.owners() == before
    assert record(world) == old


def annotations(world: World, shard: str) -> Any:
    pod = world.runtime.objects["Deployment", shard]["spec"]["template"]["metadata"]
    return pod.get("annotations")


async def test_a_shard_leaves_a_drained_node_by_one_roll() -> None:
    world = World(fleet_of(COUNT, shards=2))
    await world.run_until_complete()
    assert world.runtime.objects["PodDisruptionBudget", "hall-sensors"]["spec"]["maxUnavailable"] == 0
    strategy = world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}
    world.runtime.on_emptied_nodes = {"hall-sensors-0": Displaced("node-1", "uid-1")}
    await world.step()
    assert annotations(world, "hall-sensors-0") == {"embereye.dev/replaces": "uid-1"}
    assert annotations(world, "hall-sensors-1") is None
    world.runtime.on_emptied_nodes = {}
    world.runtime.log.clear()
    await world.run_until_complete()
    assert world.runtime.log in ([], ["status"]), "nor does it roll again when the node is back"
    assert annotations(world, "hall-sensors-0") == {"embereye.dev/replaces": "uid-1"}


async def test_a_stuck_drain_is_reported_with_its_reason() -> None:
    world = World(fleet_of(COUNT, shards=2))
    await world.run_until_complete()
    world.runtime.on_emptied_nodes = {"hall-sensors-0": Displaced("node-1", "uid-1")}
    for _ in range(DRAIN_LIMIT // (2 * SECOND)):
        outcome = await world.step()
        assert condition(outcome.status, "Degraded")[0] == "False"
    await world.step()
    outcome = await world.step()
    status, reason, message = condition(outcome.status, "Degraded")
    assert (status, reason) == ("True", "DrainStuck")
    assert "hall-sensors-0 should have left node node-1" in message
    await world.last(LASTING_SECONDS)
    assert any("DrainStuck" in event for event in world.runtime.events)


async def test_a_stuck_scale_down_is_reported_with_its_reason() -> None:
    world = World(fleet_of(COUNT, shards=2))
    await world.run_until_complete()
    world.manifest = fleet_of(COUNT, shards=1)
    world.runtime.shards["hall-sensors-0"].reachable = False
    for _ in range(DRAIN_LIMIT // (2 * SECOND) + 2):
        outcome = await world.step()
    assert ("Deployment", "hall-sensors-1") in world.runtime.objects
    status, reason, message = condition(outcome.status, "Degraded")
    assert (status, reason) == ("True", "DrainStuck")
    assert message == ("for more than 120 s hall-sensors-1 should have been deleted: hall-sensors-0 has not taken over")


async def test_a_shard_is_deleted_only_when_the_hub_has_its_reports() -> None:
    world = World(fleet_of(COUNT, shards=2))
    await world.run_until_complete()
    world.manifest = fleet_of(COUNT, shards=1)
    world.runtime.shards["hall-sensors-1"].spooled = 7
    for _ in range(DRAIN_LIMIT // (2 * SECOND) + 2):
        outcome = await world.step()
    assert ("Deployment", "hall-sensors-1") in world.runtime.objects
    status, reason, message = condition(outcome.status, "Degraded")
    assert (status, reason) == ("True", "DrainStuck")
    assert (
        "hall-sensors-1 should have been deleted: 7 of its reports wait for the hub, which does not accept them"
        in message
    )
    world.runtime.shards["hall-sensors-1"].spooled = 0
    for _ in range(3):
        outcome = await world.step()
    assert ("Deployment", "hall-sensors-1") not in world.runtime.objects
    assert condition(outcome.status, "Degraded")[0] == "False"


def chosen(count: int, shards: list[int], existing: list[int], up: list[int], **loads: float) -> list[str]:
    return choose_shards(
        count,
        PlacementRecord(shards=tuple(f"x{index}" for index in shards)),
        [f"x{index}" for index in existing],
        up=[f"x{index}" for index in up],
        loads=loads,
        name=lambda index: f"x{index}",
        index=lambda name: int(name[1:]),
    )


@pytest.mark.parametrize(
    ("count", "shards", "existing", "up", "loads", "result"),
    [
        (3, [], [], [], {}, ["x0", "x1", "x2"]),
        (2, [0, 1, 2], [0, 1, 2], [0, 1, 2], {}, ["x0", "x1"]),
        (2, [0, 1, 2], [0, 1, 2], [0, 1, 2], {"x0": 3, "x1": 1, "x2": 2}, ["x0", "x2"]),
        (2, [0, 1, 2], [0, 1, 2], [1, 2], {"x0": 3, "x1": 1, "x2": 2}, ["x1", "x2"]),
        (3, [0, 2], [0, 2], [0, 2], {}, ["x0", "x1", "x2"]),
        (3, [0, 2], [0, 2, 5], [0, 2], {}, ["x0", "x2", "x5"]),
        (2, [], [0, 1], [], {}, ["x0", "x1"]),
    ],
)
def test_shards_are_chosen(
    *, count: int, shards: list[int], existing: list[int], up: list[int], loads: dict[str, float], result: list[str]
) -> None:
    assert chosen(count, shards, existing, up, **loads) == result


def test_patience_is_bounded() -> None:
    assert patience(SECOND) == MIN_PATIENCE
    assert patience(7 * SECOND) == 14 * SECOND
    assert patience(3_600 * SECOND) == MAX_PATIENCE
