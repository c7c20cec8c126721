"""Decisions change nothing that they are handed: every function of `decide` is compared before and after its calls."""

import copy
import dataclasses
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
from google.protobuf.message import Message

from embereye_operator.decide.cluster.nodes import Displaced
from embereye_operator.decide.rollout.turns import Turns

from ..fakes import SETTINGS, World
from ..test_reconcile import fleet_of

PACKAGE = "embereye_operator.decide"
ATOMS = (str, bytes, int, float, bool, type(None))


def content(value: Any) -> Any:
    """Return a comparable copy of all that can be reached from `value`."""
    if isinstance(value, ATOMS) or callable(value):
        return value
    if isinstance(value, Message):
        return value.SerializeToString(deterministic=True)
    if isinstance(value, Mapping):
        return {key: content(entry) for key, entry in value.items()}
    if isinstance(value, Set):
        return frozenset(value)
    if isinstance(value, Sequence):
        return [content(entry) for entry in value]
    if dataclasses.is_dataclass(value):
        return [content(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return content(vars(value)) if hasattr(value, "__dict__") else value


@pytest.fixture
def call_record(monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[str], set[str]]:
    """Check every call of a function in `decide`, wherever it was imported.

    Returns the number of calls by function, and the functions that changed an argument.
    """
    counts, changing = Counter[str](), set[str]()

    def checked(function: FunctionType) -> Callable[..., Any]:
        name = f"{function.__module__}.{function.__qualname__}"

        def call(*arguments: Any, **options: Any) -> Any:
            before = content((arguments, options))
            result = function(*arguments, **options)
            counts[name] += 1
            if content((arguments, options)) != before:
                changing.add(name)
            return result

        return call

    modules = {name: module for name, module in sys.modules.items() if name.startswith("embereye_operator")}
    originals = {
        id(function): checked(function)
        for name, module in modules.items()
        if name.startswith(PACKAGE)
        for function in vars(module).values()
        if isinstance(function, FunctionType)
        and function.__module__ == name
        and not inspect.isgeneratorfunction(function)
        and not hasattr(function, "__wrapped__")
    }
    for module in modules.values():
        for name, function in list(vars(module).items()):
            if isinstance(function, FunctionType) and id(function) in originals:
                monkeypatch.setattr(module, name, originals[id(function)])
    return counts, changing


async def test_no_decision_of_a_pass_changes_what_it_is_handed(
    call_record: tuple[Counter[str], set[str]],
) -> None:
    counts, changing = call_record
    world = World(fleet_of(6, shards=2), slow=1)
    world.settings = replace(SETTINGS, turns=Turns())
    await world.run_until_complete()
    world.manifest["spec"]["shards"] = 3
    await world.run_until_complete()
    world.manifest["spec"]["shards"] = 1
    world.runtime.shards["hall-sensors-0"].draining = True
    for _ in range(5):
        await world.step()
    world.runtime.shards["hall-sensors-0"].draining = False
    world.settings = replace(world.settings, image="embereye:next")
    world.runtime.waiting_pods = {"hall-sensors-0": "its image cannot be pulled"}
    for _ in range(20):
        await world.step()
    world.runtime.on_emptied_nodes = {"hall-sensors-0": Displaced("node-1", "pod-1", lost=True, comes_back=False)}
    for _ in range(3):
        await world.step()
    world.manifest["spec"]["paused"] = True
    await world.step()
    assert changing == set()
    assert len(counts) > 100
    for name in ("intent.intend", "intent.build_change", "intent.stuck_problems", "rollout.rollout.plan_rollout"):
        assert counts[f"{PACKAGE}.{name}"]


def test_a_change_of_an_argument_is_noticed() -> None:
    argument = {"a": [1]}
    before = content(argument)
    changed = copy.deepcopy(argument)
    changed["a"].append(2)
    assert content(changed) != before
