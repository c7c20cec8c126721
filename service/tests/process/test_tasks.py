import ast
import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from embereye.process.tasks import Tasks, UnrequestedCancellationError, beside, no_stray_cancellation, start_task

ROOT = Path(__file__).parents[3]
STARTS = {"create_task", "ensure_future"}


def shipped() -> list[Path]:
    folders = ("service/embereye", "operator", "bench/embereye_bench")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [path for path in paths if not {"tests", "v1"} & set(path.relative_to(ROOT).parts)]


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


def test_no_module_starts_a_task_without_an_owner():
    bare = list[str]()
    for path in shipped():
        lines = path.read_text().splitlines()
        if path.name == "tasks.py" and path.parent.name == "process":
            continue
        numbers = bare_tasks(ast.parse("\n".join(lines)))
        marked = "noqa: TID251 --"  # with the reason behind it
        bare += [f"{path.relative_to(ROOT)}:{number}" for number in numbers if marked not in lines[number - 1]]
    assert bare == [], "use embereye.process.tasks or asyncio.TaskGroup"


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("asyncio.create_task(f())", [1]),
        ("loop = 1\nloop.create_task(f())", [2]),
        ("asyncio.get_running_loop().create_task(f())", [1]),
        ("async def f():\n async with asyncio.TaskGroup() as group:\n  group.create_task(f())", []),
    ],
)
def test_every_form_of_a_bare_task_is_noticed(code, lines):
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


async def test_an_owner_can_be_cancelled_while_its_tasks_end():
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


async def test_a_task_beside_a_block_ends_with_it():
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


async def test_the_error_of_the_block_is_raised_not_that_of_the_task():
    tasks: list[asyncio.Task[None]] = []

    async def block() -> None:
        async with beside(fail(), name="companion") as task:
            tasks.append(task)
            await asyncio.wait([task])
            raise KeyError

    with pytest.raises(KeyError):
        await block()
    assert isinstance(tasks[0].exception(), ValueError)


async def test_an_unrequested_cancellation_is_a_failure_of_the_owner(caplog):
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


async def test_a_block_distinguishes_its_cancellation_from_a_stray_one():
    stray = asyncio.get_running_loop().create_future()
    stray.cancel()
    with (
        pytest.raises(UnrequestedCancellationError, match="a delivery: cancelled without a request"),
        no_stray_cancellation("a delivery"),
    ):
        await stray

    async def guarded() -> None:
        with no_stray_cancellation("a delivery"):
            await asyncio.sleep(60)

    task = start_task(guarded(), name="guarded")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_task_that_a_cancelled_task_starts_is_cancelled_too():
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


async def test_stopping_slow_tasks_can_be_cancelled():
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


@pytest.mark.parametrize("error", [None, OSError("the call failed")])
async def test_a_cancellation_that_a_library_swallows_ends_the_task_all_the_same(error: OSError | None) -> None:
    """A shard hung while it stopped: its live call failed at the moment in which it was cancelled."""

    async def swallow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if error:
                raise error from None

    async def run() -> None:
        with contextlib.suppress(OSError), no_stray_cancellation("a call"):
            await swallow()
        await asyncio.sleep(60)

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    task.cancel()
    assert done
    assert task.cancelled()
