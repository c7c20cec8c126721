"""Failures and slow tests are printed during a run."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import os, time

def test_fails():
    assert 1 == 2

def test_crashes():
    os._exit(3)

def test_lasts():
    time.sleep(1.5)
"""
PLUGIN = """
from harness.running import RunningTests

def pytest_sessionstart(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(RunningTests(reporter.write_line, patience=0.2))
"""


def test_failures_and_slow_tests_are_printed_when_they_happen(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "harness.workers", "--numprocesses", "2", "--dist", "loadfile"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    printed, _, _ = done.stdout.partition("= FAILURES =")
    assert "failed in its call: test_it.py::test_fails: assert 1 == 2\n" in printed
    assert printed.count("test_it.py::test_lasts has been running for ") == 1
    _, crashed, after = printed.partition("failed in its process: test_it.py::test_crashes\n")
    assert crashed
    assert "test_crashes has been running" not in after
    assert "2 failed, 1 passed" in done.stdout
