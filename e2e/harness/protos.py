"""A plugin of pytest that compiles the protocol definitions if one changed, before a test imports them."""

import os
import subprocess
import sys

import pytest

from harness.need import ROOT


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Compile them once for each run."""
    sources = [*ROOT.glob("protos/**/*.proto"), *ROOT.glob("service/embereye/addons/*/protos/**/*.proto")]
    made = [path.stat().st_mtime for path in ROOT.glob("service/embereye/v1/*_pb2.py")]
    changed = max(path.stat().st_mtime for path in sources)
    if (not made or changed > min(made)) and "PYTEST_XDIST_WORKER" not in os.environ:
        subprocess.run([sys.executable, ROOT / "setup.py", "protos"], cwd=ROOT, check=True)
