"""Every write of a pass fails once, in every way; the final state is the same, and no device is dark unnecessarily."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from embereye.units import SECOND
from embereye.v1.shard_pb2 import Assignment, AssignResponse
from embereye_operator.decide.fleet_memory import REFUSED, FleetMemory
from embereye_operator.decide.placement.record import PlacementRecord
from embereye_operator.errors import RefusedError

from .fakes import FakeRuntime, World
from .test_reconcile import PLACEMENT, condition, fleet_of, record

COUNT = 8


class ServerError(Exception):
    """A 409, 410, 429, 500 or a broken connection: every error that is no refusal."""


class Failing(FakeRuntime):
    """A runtime that fails write number `at`, before or after its effect, or everything while `down`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.write_counts = 0
        self.at = 0
        self.after = False
        self.error: Callable[[], Exception] = ServerError
        self.down = False
        self.dark: set[str] = set()
        self.watching = False

    async def _write(self, write: Callable[[], Awaitable[Any]]) -> Any:
        if self.down:
            raise ServerError("connection refused")
        self.write_counts += 1
        if self.write_counts == self.at and not self.after:
            raise self.error()
        answer = await write()
        if self.watching:
            covered = {d.id for shard in self.shards.values() for d in shard.status().devices if d.covered}
            self.dark |= {f"s-{number:02}" for number in range(COUNT)} - covered
        if self.write_counts == self.at:
            raise self.error()
        return answer

    async def children(self, fleet: Any) -> Any:
        # A cache still returns its objects while the server is down.
        return await super().children(fleet)

    async def apply(self, manifest: Any, **options: Any) -> Any:
        return await self._write(lambda: super(Failing, self).apply(manifest, **options))

    async def delete(self, manifest: Any) -> None:
        await self._write(lambda: super(Failing, self).delete(manifest))

    async def scale(self, fleet: Any, shards: int) -> None:
        await self._write(lambda: super(Failing, self).scale(fleet, shards))

    async def assign(self, fleet: Any, shard: str, assignment: Assignment) -> AssignResponse | None:
        # A failed call to a shard does not raise: it has no answer.
        self.write_counts += 1
        if self.write_counts == self.at and not self.after:
            return None
        answer = await super().assign(fleet, shard, assignment)
        return None if self.write_counts == self.at else answer

    async def write_status(self, fleet: Any, status: Any) -> None:
        await self._write(lambda: super(Failing, self).write_status(fleet, status))


class Tried(World):
    """A world whose operator retries after an error, as the controller does."""

    def __init__(self, manifest: Any) -> None:
        super().__init__(manifest)
        self.runtime: Failing = Failing(slow=2)
        self.errors: list[str] = []

    async def survive(self, passes: int = 40) -> None:
        for _ in range(passes):
            try:
                outcome = await self.step()
            except (ServerError, RefusedError) as error:
                self.errors.append(str(error))
                continue
            if outcome.complete and not outcome.actions:
                return
        raise AssertionError(f"not complete after {passes} passes: {self.errors[-3:]}")

    def twin(self) -> "Tried":
        twin = Tried(copy.deepcopy(self.manifest))
        twin.runtime, twin.memory, twin.now = copy.deepcopy(self.runtime), copy.deepcopy(self.memory), self.now
        twin._spec, twin._generation = self._spec, self._generation
        return twin


def essence(world: Tried) -> Any:
    """Return the final objects, without epochs, which count changes."""
    placement = {key: value for key, value in record(world).items() if key != "epoch"}
    others = {key: value for key, value in world.runtime.objects.items() if key != PLACEMENT}
    return sorted(others), placement["shards"], sorted(placement["devices"]), "moving" in placement


def change_scale(manifest: Any) -> None:
    manifest["spec"]["shards"] = 3


def change_setting(manifest: Any) -> None:
    manifest["spec"]["deadline"] = "7s"


def change_drain(manifest: Any) -> None:
    manifest["metadata"]["annotations"] = {"embereye.dev/drain": "hall-sensors-0"}


@pytest.mark.parametrize("after", [False, True], ids=["not-done", "done-but-not-told"])
@pytest.mark.parametrize("error", [ServerError, lambda: RefusedError("quota")], ids=["error", "refusal"])
@pytest.mark.parametrize("change", [change_scale, change_setting, change_drain])
async def test_each_write_fails_once_and_the_final_state_is_the_same(
    change: Callable[[Any], None], error: Callable[[], Exception], after: bool
) -> None:
    start = Tried(fleet_of(COUNT, shards=2))
    await start.survive()
    change(start.manifest)
    clean = start.twin()
    first = clean.runtime.write_counts
    await clean.survive()
    total = clean.runtime.write_counts - first
    assert total >= 3
    for number in range(1, total + 1):
        world = start.twin()
        world.runtime.at, world.runtime.after, world.runtime.error = first + number, after, error
        world.runtime.watching = True
        await world.survive()
        assert essence(world) == essence(clean), number
        assert all(len(owners) == 1 for owners in world.owners().values()), number
        assert len(world.owners()) == COUNT
        assert world.runtime.dark == set(), f"write {number}"


async def test_a_refused_deletion_is_reported_and_delays_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Tried(fleet_of(COUNT, shards=2))
    await world.survive()
    tried: list[Any] = []

    async def refuse(manifest: Any) -> None:
        tried.append(manifest)
        raise RefusedError("Deployment default/hall-sensors-1 is not deleted: a policy")

    with monkeypatch.context() as policy:
        policy.setattr(world.runtime, "delete", refuse)
        world.manifest = fleet_of(COUNT + 1)
        for _ in range(10):
            outcome = await world.step()
        status, reason, message = condition(outcome.status, "Degraded")
        assert (status, reason) == ("True", "ApplyRefused")
        assert "a policy" in message
        assert len(world.runtime.rosters[-1].devices) == COUNT + 1
        assert 1 <= len(tried) < 10, "not tried at every pass"
    await world.survive()
    assert [name for kind, name in world.runtime.objects if kind == "Deployment"] == ["hall-sensors-0"]


async def test_a_refused_scaling_is_reported_and_delays_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Tried(fleet_of(COUNT, autoscaling={"minShards": 2}))
    tried: list[int] = []

    async def refuse(_: Any, shards: int) -> None:
        tried.append(shards)
        raise RefusedError("SensorFleet default hall is not scaled: a policy")

    with monkeypatch.context() as policy:
        policy.setattr(world.runtime, "scale", refuse)
        for _ in range(20):
            outcome = await world.step()
        assert condition(outcome.status, "Degraded")[:2] == ("True", "ApplyRefused")
        assert condition(outcome.status, "Covered")[0] == "True"
        assert 1 <= len(tried) < 10, "not tried at every pass"
    world.now += REFUSED
    await world.survive()
    assert len(world.runtime.shards) == 2


async def test_an_api_server_outage_of_a_minute_changes_nothing_for_shards() -> None:
    world = Tried(fleet_of(COUNT, shards=2))
    await world.survive()
    owners = world.owners()
    world.runtime.down = True
    world.manifest["spec"]["shards"] = 3
    for _ in range(30):
        with pytest.raises(ServerError):
            await world.step()
    assert world.owners() == owners
    world.runtime.down = False
    await world.survive()
    assert len({owner for owners in world.owners().values() for owner in owners}) == 3


async def test_two_operators_by_mistake_end_in_one_placement() -> None:
    first = Tried(fleet_of(COUNT, shards=2))
    await first.survive()
    second = Tried(first.manifest)
    second.runtime = first.runtime
    first.manifest["spec"]["shards"] = 3
    first.runtime.watching = True
    for _ in range(15):
        await first.step()
        await second.step()
    await first.survive()
    assert all(len(owners) == 1 for owners in first.owners().values())
    assert len(first.owners()) == COUNT
    assert first.runtime.dark == set()
    epoch = record(first)["epoch"]
    for _ in range(5):
        await second.step()
        await first.step()
    assert record(first)["epoch"] == epoch, "their epochs do not grow forever"


async def test_an_operator_with_a_wrong_clock_finishes_a_handover() -> None:
    for skew in (3_600, -3_600):
        world = Tried(fleet_of(COUNT))
        await world.survive()
        world.manifest["spec"]["shards"] = 2
        await world.step()
        await world.step()
        world.memory = FleetMemory()
        world.now += skew * SECOND
        world.runtime.watching = True
        await world.survive()
        assert all(len(owners) == 1 for owners in world.owners().values())
        assert world.runtime.dark == set()


async def test_an_edited_child_is_restored_and_no_device_moves() -> None:
    world = Tried(fleet_of(COUNT, shards=2))
    await world.survive()
    owners = world.owners()
    for _ in range(5):
        world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]["replicas"] = 0
        world.runtime.objects["Service", "hall-sensors"]["spec"]["selector"] = {"a": "b"}
        await world.survive()
        assert world.runtime.objects["Deployment", "hall-sensors-0"]["spec"]["replicas"] == 1
    assert world.owners() == owners
    assert record(world)["epoch"] == 1


async def test_a_child_whose_name_resembles_a_shards_is_deleted_without_delay() -> None:
    world = Tried(fleet_of(COUNT))
    await world.survive()
    lookalike = copy.deepcopy(world.runtime.objects["Deployment", "hall-sensors-0"])
    lookalike["metadata"]["name"] = "hall-sensors-01"
    world.runtime.objects["Deployment", "hall-sensors-01"] = lookalike
    await world.step()
    assert [name for kind, name in world.runtime.objects if kind == "Deployment"] == ["hall-sensors-0"]


async def test_an_invalid_name_in_the_drain_annotation_fails_no_pass() -> None:
    world = Tried(fleet_of(COUNT))
    await world.survive()
    world.manifest["metadata"]["annotations"] = {"embereye.dev/drain": f"hall-sensors-{'9' * 5000}, hall-sensors-00"}
    await world.survive()
    assert not world.errors


@pytest.mark.parametrize(
    "text", ['{"epoch": 1e999}', '{"epoch": 1e30}', '{"epoch": 1e12}', '{"epoch": -7}', "[" * 100_000]
)
async def test_a_corrupt_record_fails_no_pass_and_moves_no_device(text: str) -> None:
    world = Tried(fleet_of(COUNT, shards=2))
    await world.survive()
    owners = world.owners()
    world.runtime.objects[PLACEMENT]["data"]["placement.json"] = text
    await world.survive()
    assert not world.errors
    assert world.owners() == owners
    assert record(world)["epoch"] <= 2


async def test_children_without_an_owner_are_adopted() -> None:
    world = Tried(fleet_of(COUNT, shards=2))
    await world.survive()
    owners = world.owners()
    for child in world.runtime.objects.values():
        child["metadata"]["ownerReferences"] = []
    world.memory = FleetMemory()
    world.manifest["metadata"]["uid"] = "u-2"
    await world.survive()
    assert {child["metadata"]["ownerReferences"][0]["uid"] for child in world.runtime.objects.values()} == {"u-2"}
    assert world.owners() == owners


@pytest.mark.parametrize("known", ["first", "later"])
async def test_a_hub_with_a_newer_roster_of_a_namesake_accepts_the_fleet(known: str) -> None:
    world = Tried(fleet_of(COUNT, shards=2))
    if known == "later":
        await world.survive()
    world.runtime.hub_has = 17
    await world.survive()
    assert world.runtime.rosters[-1].epoch == record(world)["epoch"] == 18
    assert {shard.assignment.epoch for shard in world.runtime.shards.values()} == {18}
    world.runtime.hub_has = 18
    await world.survive()
    assert record(world)["epoch"] == 18


async def test_a_fleet_that_changes_during_a_handover_ends_with_single_owners() -> None:
    world = Tried(fleet_of(COUNT))
    await world.survive()
    world.runtime.watching = True
    for shards in (3, 1, 4, 2):
        world.manifest["spec"]["shards"] = shards
        await world.step()
        await world.step()
    await world.survive()
    assert world.runtime.dark == set()
    assert len({owner for owners in world.owners().values() for owner in owners}) == 2
    assert all(len(owners) == 1 for owners in world.owners().values())


async def test_the_status_of_a_future_version_is_replaced() -> None:
    world = Tried(fleet_of(COUNT))
    await world.survive()
    world.runtime.statuses.append({"conditions": "all fine", "placementEpoch": "many"})
    world.memory = FleetMemory()
    outcome = await world.step()
    assert condition(outcome.status, "Covered")[0] == "True"


def test_an_empty_record_says_nothing() -> None:
    assert PlacementRecord().to_manifest() == {"epoch": 0, "members": [], "shards": [], "devices": {}}
