"""Strip debug information from the extension modules in a folder of wheels: strip_wheels.py FOLDER.

This saves 50 MB of the image, 37 of them in PyAV and uvloop. Bundled libraries (`NAME.libs`) and the modules of numpy
and OpenCV are not stripped: bundling rewrote their program headers, and strip(1) breaks some of those.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def is_stripped(name: str) -> bool:
    """True if the file `name` in a wheel is an extension module that is safe to strip."""
    top = name.split("/", 1)[0]
    return name.endswith(".so") and not top.endswith(".libs") and top not in {"numpy", "cv2"}


def strip_wheel(wheel: Path) -> None:
    """Rewrite `wheel` with stripped modules. Raises CalledProcessError if strip(1) fails."""
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
