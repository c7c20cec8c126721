"""The wheel of the service has no simulators, benchmarks or tests; the wheel of the simulators adds only those."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from harness.need import ROOT

# The files that e2e/cluster/build-image builds the wheel from.
SOURCE = ("LICENSE", "NOTICE", "MANIFEST.in", "README.md", "docs/runbooks", "operator", "protos", "pyproject.toml",
          "service", "setup.py")  # fmt: skip


def build_wheel(source: Path, folder: Path) -> set[str]:
    """Build the wheel of `source` and unpack it into `folder`; return its modules."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--wheel-dir", source / "dist", source], check=True)
    [wheel] = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    for name in filter(lambda name: (ROOT / name).exists(), SOURCE):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def run_embereye(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command from `folder` and the installed libraries, without this checkout."""
    path = os.pathsep.join((str(folder), sysconfig.get_path("purelib")))  # -S: the checkout is not on the path
    command = [sys.executable, "-S", "-m", "embereye_cli", *words]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_service_ships_without_simulators_until_they_are_installed(source: Path, tmp_path: Path) -> None:
    files = build_wheel(source, tmp_path)
    assert "embereye/hub/server.py" in files
    parts = {part for name in files for part in Path(name).parts}
    assert not parts & {"sim", "tests", "embereye_bench", "harness", "bench"}

    refused = run_embereye(tmp_path, "simulate", "sensors", "--target", "127.0.0.1:9")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "embereye: the simulators are not installed: install the wheel embereye_simulate of this release, or use the "
        "image TAG-simulate\n"
    )
    fleet = ROOT / "charts/embereye/examples/sensorfleet.yaml"
    refused = run_embereye(tmp_path, "up", "--data", str(tmp_path / "data"), str(fleet))
    assert refused.returncode == 2
    assert "embereye.dev/simulate: the simulators are not installed" in refused.stderr

    added = build_wheel(source / "service/embereye/sim", tmp_path)
    assert {str(Path(*Path(name).parts[:2])) for name in added} == {"embereye/sim"}
    assert "embereye/sim/scenes/fire.py" in added
    assert run_embereye(tmp_path, "simulate", "cameras", "--help").returncode == 0
