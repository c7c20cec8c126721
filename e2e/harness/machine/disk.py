"""A small disk that only a site's processes see, so that it can be filled."""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

SIZE_MB = 64


@dataclass(frozen=True)
class Disk:
    """A file system in memory, mounted at `path` in a separate mount namespace."""

    path: Path
    holder: int  # id of the process in the namespace

    @property
    def prefix(self) -> list[str]:
        """The prefix of a command that runs where the disk is mounted."""
        return ["nsenter", "--mount", f"--target={self.holder}"]

    @property
    def outside(self) -> Path:
        """The disk's folder, as seen from outside the namespace."""
        return Path(f"/proc/{self.holder}/root{self.path}")

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with contextlib.suppress(OSError), (self.outside / "ballast").open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """Free the filled space."""
        (self.outside / "ballast").unlink(missing_ok=True)

    def remount(self, options: str) -> None:
        """Remount the disk with `options`, such as "ro" or "rw"."""
        subprocess.run([*self.prefix, "mount", "-o", f"remount,{options}", str(self.path)], check=True)


def can_mount() -> bool:
    """True if this user is allowed to mount a disk."""
    return os.geteuid() == 0 and bool(shutil.which("unshare") and shutil.which("nsenter"))


@asynccontextmanager
async def mounted_disk(
    path: Path, size_mb: int = SIZE_MB, files: Mapping[Path, Path] | None = None
) -> AsyncIterator[Disk]:
    """Mount a disk at `path`, and `files` over others that exist. Raises RuntimeError if the machine refuses."""
    path.mkdir(parents=True, exist_ok=True)
    mounts = [f"mount -t tmpfs -o size={size_mb}m,mode=755 tmpfs {shlex.quote(str(path))}"]
    mounts += [f"mount --bind {shlex.quote(str(file))} {over}" for over, file in (files or {}).items()]
    script = f"{' && '.join(mounts)} && echo mounted && exec sleep infinity"
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
