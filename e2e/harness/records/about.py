"""The time and machine of a run, for its page."""

import subprocess
import time
from pathlib import Path
from typing import Any

from embereye_bench.results.records import describe_machine

ROOT = Path(__file__).parents[3]


def about_run(seed: int) -> dict[str, Any]:
    """Record the time, seed, commit and machine of a run that starts now."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"at": at, "seed": seed, "commit": commit.stdout.strip() or "unknown", "machine": describe_machine()}


def describe_run(about: dict[str, Any]) -> str:
    """The start of the sentence that describes a run on its page."""
    machine = about["machine"]
    return (
        f"Run of {about['at']}, seed {about['seed']}, commit {about['commit'][:8]}, {machine['cores']} cores of "
        f"{machine['cpu']}, {machine['memoryGb']:g} GB, Python {machine['python']}"
    )
