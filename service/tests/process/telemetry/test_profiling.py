"""Profiles of time and memory, pinning to processors, and the usage of processes."""

import os
import pstats
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from embereye.process.lifecycle import UserError
from embereye.process.telemetry.profiling import pin, profiled
from embereye.process.telemetry.usage import listeners, tree, usage_of, usage_of_trees


def work() -> list[bytes]:
    return [bytes(1000) for _ in range(1000)]


def test_a_profile_names_the_called_functions(tmp_path: Path) -> None:
    with profiled(tmp_path / "out.prof", None):
        work()
    functions = {name for _, _, name in pstats.Stats(str(tmp_path / "out.prof")).stats}  # type: ignore[attr-defined]
    assert "work" in functions


def test_allocations_name_the_line_that_allocated(tmp_path: Path) -> None:
    with profiled(None, tmp_path / "allocations.txt"):
        allocated = work()
    text = (tmp_path / "allocations.txt").read_text()
    assert "test_profiling.py" in text
    assert int(text.split(" blocks")[0]) >= len(allocated)


def test_a_profile_is_written_even_if_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), profiled(tmp_path / "out.prof", None):
        raise ZeroDivisionError
    assert (tmp_path / "out.prof").stat().st_size


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--profile .* cannot be written"), profiled(tmp_path / "no" / "out", None):
        pytest.fail("it ran")


@pytest.mark.parametrize("cpus", ["", "x", "0-", "99999", "4000", "0,,1"])
def test_an_error_names_unavailable_processors(cpus: str) -> None:
    with pytest.raises(UserError, match="--cpus"):
        pin(cpus)


def test_a_pinned_process_and_its_children_run_on_the_given_processors() -> None:
    first = min(os.sched_getaffinity(0))
    show = "import os, subprocess, sys; print(os.sched_getaffinity(0))"
    code = f"from embereye.process.telemetry.profiling import pin; pin('{first}'); import subprocess, sys; " \
           f"subprocess.run([sys.executable, '-c', {show!r}])"  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == f"{{{first}}}"


def test_every_command_accepts_the_options_of_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "embereye_cli", "plan", "--sensors", "1", "--profile", str(tmp_path / "plan.prof")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "in all:" in ran.stdout
    assert "snakeviz" in ran.stderr
    assert (tmp_path / "plan.prof").stat().st_size


def test_the_usage_of_a_process_is_known_until_it_ends() -> None:
    usage = usage_of(os.getpid())
    assert usage is not None
    assert usage.memory_mb > usage.files_mb > 1
    assert usage.threads >= 1
    assert usage.descriptors >= 3
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert usage_of(ended.pid) is None
    assert usage_of_trees([ended.pid]) == []


def test_children_belong_to_a_process_and_listeners_are_found_by_their_port() -> None:
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
        "sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    port = int(child.stdout.readline())
    assert child.pid in tree(os.getpid())
    assert listeners(port) == [child.pid]
    child.communicate("")
    assert listeners(port) == []


def test_children_of_a_thread_belong_to_its_process() -> None:
    with ThreadPoolExecutor(1) as threads:
        child = threads.submit(subprocess.Popen, ["sleep", "60"]).result()
        try:
            assert child.pid in tree(os.getpid())
        finally:
            child.kill()
            child.wait()
