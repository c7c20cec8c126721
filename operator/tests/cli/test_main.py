"""The command by itself: how it ends before what it runs has begun."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.need import FIRST_PROCESS, OWN_PROCESSES

from embereye_cli import main as command

BEGIN = """
import sys, time
from embereye_cli import main
def load(name):
    print("loading", flush=True)
    time.sleep(60)
main.importlib.import_module = load
main.main(["hub"])
"""


@pytest.mark.needs(FIRST_PROCESS)
def test_the_first_process_of_a_container_ends_when_it_is_told_to_while_it_starts():
    process = subprocess.Popen([*OWN_PROCESSES, sys.executable, "-c", BEGIN], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        (child,) = children(process.pid)
        os.kill(child, signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_command_that_is_no_container_leaves_signals_to_what_it_runs():
    before = signal.getsignal(signal.SIGTERM)
    assert command.main(["--version"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
