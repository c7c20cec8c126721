import ast
import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from embereye.process.tasks import CalledOffError, Tasks, beside, no_stray_cancellation, start_task

ROOT = Path(__file__).parents[3]
STARTS = {"create_task", "ensure_future"}


def shipped() -> list[Path]:
    folders = ("service/embereye", "operator", "bench/embereye_bench")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if not {"tests", "v1"} & set(path.relative_to(ROOT).parts)]


def bare_tasks(tree: ast.Module) -> Iterator[int]:
    """Lines that start a task of the event loop itself, not of a task group that a block ends with."""
    groups = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and "TaskGroup" in ast.unparse(item.context_expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTS:
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id in groups):
                yield node.lineno


def test_nobody_starts_a_task_that_nobody_answers_for():
    found = []
    for path in shipped():
        lines = path.read_text().splitlines()
        if path.name == "tasks.py" and path.parent.name == "process":
            continue
        bare = bare_tasks(ast.parse("\n".join(lines)))
        marked = "noqa: TID251 --"  # with the reason behind it
        found += [f"{path.relative_to(ROOT)}:{number}" for number in bare if marked not in lines[number - 1]]
    assert found == [], "use embereye.process.tasks or asyncio.TaskGroup"


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("asyncio.create_task(f())", [1]),
        ("loop = 1\nloop.create_task(f())", [2]),
        ("asyncio.get_running_loop().create_task(f())", [1]),
        ("async def f():\n async with asyncio.TaskGroup() as group:\n  group.create_task(f())", []),
    ],
)
def test_a_bare_task_is_found_however_it_is_started(code, lines):
    assert list(bare_tasks(ast.parse(code))) == lines


async def fail() -> None:
    raise ValueError("broken")


async def test_the_failure_of_a_task_is_logged_at_once(caplog):
    with caplog.at_level(logging.ERROR):
        await asyncio.wait([start_task(fail(), name="relay")])
    assert [record.message for record in caplog.records] == ["task relay failed"]


async def ending_slowly(asked: asyncio.Event, may_end: asyncio.Event) -> None:
    """Once cancelled it says so by `asked`, and ends at `may_end`."""
    try:
        await asyncio.Event().wait()
    finally:
        asked.set()
        await may_end.wait()


async def test_whoever_is_cancelled_while_its_tasks_end_is_cancelled():
    asked, may_end = asyncio.Event(), asyncio.Event()

    async def owner() -> None:
        while True:
            async with Tasks() as tasks:
                tasks.start(ending_slowly(asked, may_end), name="slow")
                await asyncio.sleep(0)

    owning = start_task(owner(), name="owner")
    await asked.wait()
    owning.cancel()
    await asyncio.wait([owning], timeout=20)
    may_end.set()
    assert owning.cancelled()


async def test_what_runs_beside_a_block_ends_with_it():
    ended = asyncio.Event()

    async def companion() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    async with beside(companion(), name="companion") as task:
        await asyncio.sleep(0)
    assert ended.is_set()
    assert task.cancelled()


async def test_the_blocks_own_error_is_the_one_that_is_raised():
    tasks: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with beside(fail(), name="companion") as task:
            tasks.append(task)
            await asyncio.wait([task])
            raise KeyError

    with pytest.raises(KeyError):
        await block()
    assert isinstance(tasks[0].exception(), ValueError)


async def test_a_cancellation_that_nobody_asked_for_is_a_failure_of_its_owner(caplog):
    async def ended_from_within() -> None:
        called_off = asyncio.get_running_loop().create_future()
        called_off.cancel()
        await called_off

    async with Tasks() as tasks:
        tasks.start(asyncio.sleep(60), name="asked").cancel()
        await asyncio.sleep(0.01)
        assert not tasks.failed.is_set()
        tasks.start(ended_from_within(), name="deliver")
        await asyncio.wait_for(tasks.failed.wait(), 5)
    assert [record.message for record in caplog.records] == ["task deliver failed"]


async def test_a_block_tells_its_own_cancellation_from_a_stray_one():
    stray = asyncio.get_running_loop().create_future()
    stray.cancel()
    with pytest.raises(CalledOffError, match="a delivery was called off"), no_stray_cancellation("a delivery"):
        await stray

    async def guarded() -> None:
        with no_stray_cancellation("a delivery"):
            await asyncio.sleep(60)

    task = start_task(guarded(), name="guarded")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_what_a_task_starts_as_it_is_cancelled_is_cancelled_too():
    tasks, started = Tasks(), []

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            started.append(tasks.start(asyncio.Event().wait(), name="another"))

    tasks.start(go_on(), name="first")
    await asyncio.sleep(0)  # it runs
    await tasks.stop()
    assert [task.cancelled() for task in started] == [True]


async def test_who_stops_tasks_that_take_their_time_can_be_cancelled():
    tasks, asked, end = Tasks(), asyncio.Event(), asyncio.Event()

    tasks.start(ending_slowly(asked, end), name="slow")
    await asyncio.sleep(0)  # it runs
    stopping = asyncio.ensure_future(tasks.stop())
    await asked.wait()
    stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled()
    end.set()
    await tasks.stop()
