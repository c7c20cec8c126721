"""A small disk that only a site's processes see, so that it can be filled."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

SIZE_MB = 64


@dataclass(frozen=True)
class Disk:
    """A file system in memory, mounted at `path` in a mount namespace of its own."""

    path: Path
    holder: int  # id of the process that keeps the namespace

    @property
    def prefix(self) -> list[str]:
        """Before a command: run it where the disk is seen."""
        return ["nsenter", "--mount", f"--target={self.holder}"]

    @property
    def outside(self) -> Path:
        """Its folder as others reach it."""
        return Path(f"/proc/{self.holder}/root{self.path}")

    def fill(self) -> None:
        """Leave not a byte of it."""
        with contextlib.suppress(OSError), (self.outside / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """Give back what was filled."""
        (self.outside / "ballast").unlink(missing_ok=True)

    def remount(self, options: str) -> None:
        """Mount it anew: "ro", "rw"."""
        subprocess.run([*self.prefix, "mount", "-o", f"remount,{options}", str(self.path)], check=True)


def can_mount() -> bool:
    """Whether this user may mount a disk of its own."""
    return os.geteuid() == 0 and bool(shutil.which("unshare") and shutil.which("nsenter"))


@asynccontextmanager
async def own_disk(path: Path, size_mb: int = SIZE_MB) -> AsyncIterator[Disk]:
    """A disk at `path`; RuntimeError where the machine does not let it be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    script = f"mount -t tmpfs -o size={size_mb}m tmpfs '{path}' && echo mounted && exec sleep infinity"
    holder = await asyncio.create_subprocess_exec("unshare", "--mount", "sh", "-c", script,
                                                  stdout=asyncio.subprocess.PIPE)  # fmt: skip
    try:
        assert holder.stdout
        if await holder.stdout.readline() != b"mounted\n":
            raise RuntimeError(f"no disk could be mounted at {path}")
        yield Disk(path, holder.pid)
    finally:
        holder.kill()
        await holder.wait()
