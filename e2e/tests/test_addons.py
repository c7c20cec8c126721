"""Deleting the folder of an add-on deletes the feature: lint and the other tests pass without a change by hand."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from harness.need import ROOT

ADDONS = "service/embereye/addons"
SOURCES = ("service", "operator", "bench", "e2e", "training", ".")
# Of everything that add-ons contribute to: the command line, the hub's HTTP, gRPC and stored data, monitoring,
# runbooks, documentation, benchmarks and the chart. All other tests are only collected.
REMAINING = ("bench/tests/hub", "bench/tests/results", "charts/tests/test_hub_values.py", "lint/tests",
             "operator/tests/cli/test_documentation.py", "operator/tests/cli/test_hub_options.py",
             "operator/tests/cli/test_main.py", "operator/tests/cli/test_runbooks.py",
             "operator/tests/decide/test_sensor_sources.py", "operator/tests/monitoring/test_files.py",
             "service/tests/hub/http/test_api.py", "service/tests/hub/http/test_openapi.py",
             "service/tests/hub/test_hub.py", "service/tests/hub/test_services.py")  # fmt: skip


class Copy:
    """A copy of this checkout, without some add-ons."""

    def __init__(self, folder: Path, deleted: tuple[str, ...]) -> None:
        self.folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file() or (ROOT / name).is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        for addon in deleted:
            shutil.rmtree(folder / ADDONS / addon)
        if (cache := ROOT / ".mypy_cache").is_dir():
            shutil.copytree(cache, folder / cache.name)  # it saves minutes
        self.run("setup.py", "protos")
        self.run("-m", "embereye_operator.monitoring.files")

    def run(self, *command: str) -> str:
        """Run Python with `command` in the copy; return its output. Fails if its exit code is not 0."""
        # -S: this checkout is not on the path.
        path = os.pathsep.join((*(str(self.folder / name) for name in SOURCES), sysconfig.get_path("purelib")))
        scripts = os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"]))
        environment = {**os.environ, "PYTHONPATH": path, "PATH": scripts}
        done = subprocess.run(
            [sys.executable, "-S", *command], cwd=self.folder, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
        return done.stdout


def addons() -> list[str]:
    return sorted(path.parent.name for path in (ROOT / ADDONS).glob("*/__init__.py"))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout of git")
@pytest.mark.timeout(600)
def test_without_add_ons_lint_and_the_command_line_work(tmp_path: Path) -> None:
    copy = Copy(tmp_path, tuple(addons()))
    copy.run("-m", "ruff", "check", "--quiet")
    copy.run("-c", "from importlinter.cli import lint_imports_command as lint; lint()")
    options = copy.run("-m", "embereye_cli", "hub", "--help")
    assert "--mqtt-broker" in options
    assert "--nats" not in options
    assert "--association-port" not in options
    assert "control" not in copy.run("-m", "embereye_cli").split()


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout of git")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("deleted", [*((addon,) for addon in addons()), tuple(addons())], ids=" and ".join)
def test_without_an_add_on_types_and_the_remaining_tests_are_right(deleted: tuple[str, ...], tmp_path: Path) -> None:
    copy = Copy(tmp_path, deleted)
    copy.run("-m", "ruff", "check", "--quiet")
    copy.run("-c", "from importlinter.cli import lint_imports_command as lint; lint()")
    copy.run("-m", "mypy")
    copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only")
    copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *REMAINING)
