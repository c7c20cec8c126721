"""Has OpenCV use the FFmpeg that PyAV brings, where both are of the same ABI: share_ffmpeg.py SITE-PACKAGES.

Both wheels bundle FFmpeg. OpenCV's 29 MB are of no use of their own, and come with an OpenSSL 1.1.1 that nobody
maintains. FFmpeg keeps its ABI within the major number of a library's name; where that differs nothing is shared.
"""

import re
import sys
from pathlib import Path

LIBRARIES = ("avcodec", "avformat", "avutil", "swresample", "swscale")
ONLY_FOR_THEM = ("crypto", "drm", "ssl", "vpx")


def library(folder: Path, name: str) -> tuple[Path, str] | None:
    """The file of the library `name` in `folder`, and its major number."""
    for path in folder.glob(f"lib{name}-*.so.*"):
        if match := re.fullmatch(rf"lib{name}-[0-9a-f]+\.so\.(\d+)[\d.]*\w?", path.name):
            return path, match[1]
    return None


def share(site_packages: Path) -> bool:
    """Replace OpenCV's libraries by links to PyAV's, all or none; whether it was done."""
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
        if found := library(theirs, name):
            found[0].unlink()
    # What those need is looked for beside the name that they were found by.
    for path in ours.iterdir():
        (theirs / path.name).symlink_to(Path("../av.libs") / path.name)
    return True


if __name__ == "__main__":
    print("one FFmpeg" if share(Path(sys.argv[1])) else "two FFmpegs: their major numbers differ")
