import asyncio
import os
import subprocess
import sys

import pytest

from embereye.process import lifecycle
from embereye.process.lifecycle import PARENT_VARIABLE, UserError
from embereye.process.tasks import Tasks

WAIT_FOR_STOP = """
from embereye.process import lifecycle
async def main(stop):
    print("up", flush=True)
    await stop.wait()
raise SystemExit(lifecycle.run(main))
"""


GRPC_AGAIN = """
import gc, threading
from embereye.process import grpc_server, lifecycle
async def main(stop):
    only = grpc_server.channel("127.0.0.1:9")
    threads = set(threading.enumerate())
    await only.close()
    del only
    gc.collect()
    assert set(threading.enumerate()) == threads
raise SystemExit(lifecycle.run(main))
"""


def test_grpcs_engine_runs_on_between_one_server_and_the_next() -> None:
    subprocess.run([sys.executable, "-c", GRPC_AGAIN], timeout=60, check=True)


def test_a_process_whose_parent_ended_early_stops_too() -> None:
    nobody = subprocess.Popen([sys.executable, "-c", ""])
    nobody.wait()
    environment = {**os.environ, PARENT_VARIABLE: str(nobody.pid)}
    subprocess.run([sys.executable, "-c", WAIT_FOR_STOP], env=environment, timeout=60, check=True)


def test_sigterm_stops_a_process_with_success() -> None:
    process = subprocess.Popen([sys.executable, "-c", WAIT_FOR_STOP], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    process.terminate()
    assert process.wait(60) == 0


def test_a_user_error_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_: asyncio.Event) -> None:
        raise UserError("the door is open: close it")

    assert lifecycle.run(main) == 2
    assert capsys.readouterr().err == "embereye: the door is open: close it\n"


def test_a_user_error_of_a_concurrent_task_is_one_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> None:
        raise UserError("the door is open: close it")

    async def main(_: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            outer.create_task(asyncio.sleep(60))
            inner.create_task(fail())

    assert lifecycle.run(main) == 2
    assert capsys.readouterr().err == "embereye: the door is open: close it\n"


async def test_a_task_that_fails_is_its_owners_failure() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async with Tasks() as tasks:
        tasks.start(fail(), name="fails")
        await asyncio.wait_for(tasks.failed.wait(), 10)


async def test_tasks_end_with_their_owner() -> None:
    ended = asyncio.Event()

    async def run_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Tasks() as tasks:
        tasks.start(run_forever(), name="runs")
        await asyncio.sleep(0)
    assert ended.is_set()
