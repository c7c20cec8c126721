"""The release before this one, built from its source, from which an upgrade starts."""

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

TAG = "previous"  # image tag


@cache
def previous_commit() -> str:
    """The commit in EMBEREYE_PREVIOUS, or the newest release tag before this commit; empty without one."""
    if named := os.environ.get("EMBEREYE_PREVIOUS", ""):
        return named
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]
    described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return described.stdout.strip()


PREVIOUS = Need(
    "a release before this one",
    "name its commit in EMBEREYE_PREVIOUS, or tag it v*",
    lambda: bool(previous_commit()),
)


@dataclass(frozen=True)
class Previous:
    """The previous release: its commit and its chart."""

    commit: str
    chart: Path

    @property
    def values(self) -> tuple[str, ...]:
        """The chart values that select its image."""
        return (f"image.tag={TAG}",)


@asynccontextmanager
async def previous_release() -> AsyncIterator[Previous]:
    """Check out its source until the context ends, and load its image into the nodes, where it stays."""
    commit = previous_commit()
    with tempfile.TemporaryDirectory(prefix="embereye-previous-") as name:
        folder = Path(name) / "source"
        await _git("worktree", "add", "--detach", str(folder), commit)
        try:
            # Its own script builds its image, with the tools and caches of this checkout.
            (folder / ".venv").symlink_to(ROOT / ".venv")
            caches = os.environ.get("EMBEREYE_CACHE") or str(ROOT / ".cache")
            build = ["env", f"EMBEREYE_CACHE={caches}", str(folder / "e2e/cluster/build-image"), f"embereye:{TAG}"]
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
