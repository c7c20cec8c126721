"""The scripts that make the image small remove only parts that are not needed."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cluster.share_ffmpeg import LIBRARIES, share
from cluster.strip_wheels import is_stripped, strip_wheel
from harness.need import ROOT


def site_packages(folder: Path, theirs: int, ours: int) -> Path:
    for name, major, wheel in (("c4", theirs, "opencv_python_headless.libs"), ("5e", ours, "av.libs")):
        (folder / wheel).mkdir()
        for library in LIBRARIES:
            (folder / wheel / f"lib{library}-{name}.so.{major}.28.100").write_text(wheel)
    (folder / "opencv_python_headless.libs" / "libssl-81.so.1.1.1k").touch()
    (folder / "opencv_python_headless.libs" / "libpng16-52.so.16.58.0").touch()
    (folder / "av.libs" / "libx264-d6.so.165").touch()
    return folder


def test_opencv_uses_the_ffmpeg_of_pyav(tmp_path: Path) -> None:
    assert share(site_packages(tmp_path, 62, 62))
    theirs = tmp_path / "opencv_python_headless.libs"
    assert (theirs / "libavcodec-c4.so.62.28.100").read_text() == "av.libs"
    assert (theirs / "libx264-d6.so.165").exists(), "FFmpeg's dependencies are in its folder"
    assert not (theirs / "libssl-81.so.1.1.1k").exists()
    assert not (theirs / "libpng16-52.so.16.58.0").is_symlink()


def test_ffmpegs_of_different_abi_stay_two(tmp_path: Path) -> None:
    assert not share(site_packages(tmp_path, 61, 62))
    assert (tmp_path / "opencv_python_headless.libs" / "libavcodec-c4.so.61.28.100").read_text() != "av.libs"
    assert (tmp_path / "opencv_python_headless.libs" / "libssl-81.so.1.1.1k").exists()


@pytest.mark.skipif(not shutil.which("strip"), reason="strip is missing: install Debian's package binutils")
def test_a_stripped_wheel_still_loads_and_its_bundled_libraries_are_untouched(tmp_path: Path) -> None:
    import uvloop.loop

    module = Path(uvloop.loop.__file__)
    wheel = tmp_path / "demo-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(module, f"demo/{module.name}")
        archive.writestr("demo.libs/libdemo.so", b"not an ELF file")
        archive.writestr("demo-1.dist-info/RECORD", "")
    strip_wheel(wheel)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        assert len(archive.namelist()) == 3
    assert (tmp_path / "demo" / module.name).stat().st_size < module.stat().st_size / 2
    load = f"import importlib.machinery as m; m.ExtensionFileLoader('uvloop.loop', '{tmp_path / 'demo' / module.name}')"
    subprocess.run([sys.executable, "-c", load + ".load_module()"], check=True)
    assert not is_stripped("numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so")
    assert not is_stripped("cv2/cv2.abi3.so")


def test_packages_without_wheels_are_built_from_their_pinned_sources() -> None:
    """The script downloads wheels only, so one such package more would stop every build of the image."""
    script = (ROOT / "e2e" / "cluster" / "build-image").read_text()
    (names,) = re.findall(r"^source_only='([^']*)'", script, re.MULTILINE)
    lock = (ROOT / "requirements.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9][\w.-]*)(==[^\n]+ \\\n(?:    --hash=\S+(?: \\)?\n)+)", lock, re.MULTILINE))
    assert set(names.split()) <= pins.keys()
    command = re.search(r"^ *pins\(\) (\{.*)$", script, re.MULTILINE)
    assert command
    for rule, wanted in (("listed", set(names.split())), ("!listed", pins.keys() - set(names.split()))):
        text = f"source_only='{names}'; root={ROOT}; pins() {command[1]}\npins '{rule}'"
        listed = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"^([a-z0-9][\w.-]*)==", listed, re.MULTILINE)) == wanted
        assert listed.count("--hash=") == sum(pins[name].count("--hash=") for name in wanted)
