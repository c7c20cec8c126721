"""The release before this one, built from its own source: what an upgrade starts from."""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.cluster.cluster import ROOT, CommandError, execute, script
from harness.need import Need

TAG = "previous"  # of its image


@cache
def previous_commit() -> str:
    """What EMBEREYE_PREVIOUS names, otherwise the newest tag of a release before this commit; '' where none is."""
    if named := os.environ.get("EMBEREYE_PREVIOUS", ""):
        return named
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip()


PREVIOUS = Need(
    "a release before this one",
    "name its commit in EMBEREYE_PREVIOUS where no tag v* does",
    lambda: bool(previous_commit()),
)


@dataclass(frozen=True)
class Previous:
    """That release."""

    commit: str
    chart: Path

    @property
    def values(self) -> tuple[str, ...]:
        """Values of its chart that have its image run."""
        return (f"image.tag={TAG}",)


@asynccontextmanager
async def previous_release() -> AsyncIterator[Previous]:
    """Its source for as long as this is entered; its image is in the nodes, and stays."""
    commit = previous_commit()
    with tempfile.TemporaryDirectory(prefix="embereye-previous-") as name:
        folder = Path(name) / "source"
        await _git("worktree", "add", "--detach", str(folder), commit)
        try:
            # Its image is made by its own script, with the tools and the caches of this checkout.
            (folder / ".venv").symlink_to(ROOT / ".venv")
            cache = os.environ.get("EMBEREYE_CACHE") or str(ROOT / ".cache")
            build = ["env", f"EMBEREYE_CACHE={cache}", str(folder / "e2e/cluster/build-image"), f"embereye:{TAG}"]
            built = await execute(build, limit=900)
            if built.code:
                raise CommandError(f"the image of {commit}: {built.err.strip()}")
            await script("load", f"embereye:{TAG}")
            yield Previous(commit, folder / "charts/embereye")
        finally:
            await _git("worktree", "remove", "--force", str(folder))


async def _git(*arguments: str) -> None:
    done = await execute(["git", "-C", ROOT, *arguments])
    if done.code:
        raise CommandError(f"git {' '.join(arguments)}: {done.err.strip()}")
