"""Makes OpenCV's wheel smaller by 60 MB: it uses PyAV's FFmpeg, and Debian's LAPACK.

Both wheels bundle FFmpeg. OpenCV's copy takes 29 MB and brings an OpenSSL 1.1.1 without maintenance. FFmpeg's ABI is
stable within the major number of a library's name; if these numbers differ, FFmpeg is not shared.

OpenBLAS takes another 39 MB. OpenCV uses it for large systems of equations, which no detector solves: the appearance
network takes the same time, and gives the same numbers, with Debian's LAPACK.
"""

import re
from pathlib import Path

LIBRARIES = ("avcodec", "avformat", "avutil", "swresample", "swscale")
ONLY_FOR_THEM = ("crypto", "drm", "ssl", "vpx")


def library(folder: Path, name: str) -> tuple[Path, str] | None:
    """The file of the library `name` in `folder`, and its major number; None without one."""
    for path in folder.glob(f"lib{name}-*.so.*"):
        if match := re.fullmatch(rf"lib{name}-[0-9a-f]+\.so\.(\d+)[\d.]*\w?", path.name):
            return path, match[1]
    return None


def share_ffmpeg(site_packages: Path) -> bool:
    """Replace OpenCV's libraries by links to PyAV's, all or none. Returns True if they were replaced."""
    theirs, ours = site_packages / "opencv_python_headless.libs", site_packages / "av.libs"
    pairs = [(library(theirs, name), library(ours, name)) for name in LIBRARIES]
    if any(old is None or new is None or old[1] != new[1] for old, new in pairs):
        return False
    for old, new in pairs:
        assert old is not None
        assert new is not None
        old[0].unlink()
        old[0].symlink_to(Path("../av.libs") / new[0].name)
    for name in ONLY_FOR_THEM:
        if unused := library(theirs, name):
            unused[0].unlink()
    # The loader searches their dependencies in the folder of the link.
    for path in ours.iterdir():
        (theirs / path.name).symlink_to(Path("../av.libs") / path.name)
    return True


def use_lapack(site_packages: Path, lapack: str) -> None:
    """Replace OpenCV's OpenBLAS, with its Fortran runtime, by a link to the library `lapack` of the base."""
    theirs = site_packages / "opencv_python_headless.libs"
    for path in theirs.glob("libopenblas*.so"):
        path.unlink()
        path.symlink_to(lapack)
        for name in ("gfortran", "quadmath"):
            if unused := library(theirs, name):
                unused[0].unlink()
