"""Strips the extension modules in a folder of wheels of what only debuggers read: strip_wheels.py FOLDER.

50 MB of the image: PyAV's and uvloop's modules alone carry 37. Libraries that a wheel bundles (`NAME.libs`) and the
modules of numpy and OpenCV stay as they are: bundling rewrote their program headers, and strip(1) breaks some of those.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def is_stripped(name: str) -> bool:
    """Whether the file of this name in a wheel is an extension module that may be stripped."""
    top = name.split("/", 1)[0]
    return name.endswith(".so") and not top.endswith(".libs") and top not in {"numpy", "cv2"}


def strip_wheel(wheel: Path) -> None:
    """Write `wheel` anew with its modules stripped; CalledProcessError: strip(1) did not understand one."""
    with zipfile.ZipFile(wheel) as source:
        if not any(map(is_stripped, source.namelist())):
            return
        new = wheel.with_suffix(".new")
        with tempfile.NamedTemporaryFile() as module, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as target:
            for entry in source.infolist():
                data = source.read(entry)
                if is_stripped(entry.filename):
                    Path(module.name).write_bytes(data)
                    subprocess.run(["strip", "--strip-unneeded", module.name], check=True)
                    data = Path(module.name).read_bytes()
                target.writestr(entry, data)
        new.replace(wheel)


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.whl")):
        strip_wheel(path)
