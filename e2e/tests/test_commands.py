"""`make programs` and `make fresh` on machines that lack what they need."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness.need import ROOT

CLUSTER = ROOT / "e2e" / "cluster"


def run(*command: str | Path, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key not in {"KUBEBUILDER_ASSETS", "MAKEFLAGS"}}
    environment = {**inherited, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def go_that(answer: str, folder: Path) -> str:
    """A PATH that starts with a Go which gives `answer` to every command."""
    (folder / "go").write_text(f"#!/bin/sh\n{answer}\n")
    (folder / "go").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("exit 127", "Go is not installed"), ("echo go1.19.8", "go1.19.8, which is too old"), ("echo go1.9", "too old")],
)
def test_without_a_recent_go_nothing_is_built_and_the_remedy_is_told(answer: str, reason: str, tmp_path: Path) -> None:
    elsewhere: dict[str, Any] = {"PATH": go_that(answer, tmp_path), "EMBEREYE_CACHE": tmp_path / "cache"}
    optional = run(CLUSTER / "binaries", "--optional", "etcd", "helm", **elsewhere)
    assert optional.returncode == 0
    assert reason in optional.stderr
    assert "tests that need etcd helm are skipped; install Go 1.21 or later" in optional.stderr
    demanded = run(CLUSTER / "binaries", "helm", **elsewhere)
    assert demanded.returncode == 1
    assert reason in demanded.stderr
    assert "install Go 1.21 or later" in demanded.stderr


def test_a_go_that_may_fetch_no_newer_one_is_told_as_such(tmp_path: Path) -> None:
    path = go_that('[ "$2" = GOVERSION ] && echo go1.24.1 || echo local', tmp_path)
    done = run(CLUSTER / "binaries", "helm", PATH=path, EMBEREYE_CACHE=tmp_path / "cache")
    assert done.returncode == 1
    assert "is go1.24.1, and GOTOOLCHAIN=local keeps it from fetching 1.2" in done.stderr


def test_what_is_there_is_not_built_again_whatever_go_there_is(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = Path(run(CLUSTER / "binaries", EMBEREYE_CACHE=cache).stdout.strip())
    (folder / "glua").touch(0o755)
    done = run(CLUSTER / "binaries", "glua", PATH=go_that("exit 127", tmp_path), EMBEREYE_CACHE=cache)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(folder), "")


@pytest.mark.parametrize(("recipe", "code"), [("@echo 7 passed in 0.1s", 0), ("@echo 1 failed in 0.1s; exit 1", 2)])
def test_where_no_bare_debian_can_be_made_that_is_said_and_the_tests_run_here(
    recipe: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "e2e" / "cluster").mkdir(parents=True)
    shutil.copy(ROOT / "e2e" / "fresh", tmp_path / "e2e")
    shutil.copy(CLUSTER / "library.bash", tmp_path / "e2e" / "cluster")
    (tmp_path / "Makefile").write_text(f"test:\n\t{recipe}\n")  # a folder that is no clone of anything
    done = run(tmp_path / "e2e" / "fresh", EMBEREYE_CACHE=tmp_path / "cache", GIT_CEILING_DIRECTORIES=tmp_path.parent)
    assert "no bare Debian can be made here" in done.stderr
    assert "running make test on this machine instead" in done.stderr
    assert done.stdout.strip().splitlines()[-1] == recipe.removeprefix("@echo ").split(";")[0]
    assert done.returncode == code


def test_failed_tests_are_told_from_captured_log_lines(tmp_path: Path) -> None:
    """`make fresh --once-more` repeats up to five tests; each line of a test's captured log was counted as one, too."""
    log = tmp_path / "test.log"
    log.write_text(
        "------------ Captured log call ------------\n"
        "ERROR    asyncio:base_events.py:1820 Task exception was never retrieved\n"
        "ERROR    embereye.hub:app.py:12 the database cannot be written\n"
        "FAILED service/tests/test_a.py::test_one[a b] - AssertionError: x\n"
        "ERROR service/tests/test_b.py - ImportError: no module\n"
        "==== 1 failed, 2 passed, 1 error in 3.00s ====\n"
    )
    done = run(
        "bash", "-c", f"here={CLUSTER}; source {CLUSTER}/library.bash; failed_tests {log}", EMBEREYE_CACHE=tmp_path
    )
    assert done.stdout.split() == ["service/tests/test_a.py::test_one[a", "service/tests/test_b.py"]
