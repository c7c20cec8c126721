"""The image is built for each architecture from packages and wheels, without executing any of them."""

import hashlib
import importlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from harness.need import ROOT

from deploy.image import debian, elf, layout, packages
from deploy.image.opencv import LIBRARIES, share_ffmpeg, use_lapack

DPKG = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb: run it on Debian or Ubuntu")


def uvloop_module() -> Path:
    import uvloop.loop

    return Path(uvloop.loop.__file__)


def for_machine(data: bytes, number: int) -> bytes:
    return data[:18] + struct.pack("<H", number) + data[20:]


# --- ELF files


# Bundling rewrote the headers of some of them, which leaves debug information between their segments.
@pytest.mark.parametrize(
    "name", ["uvloop.loop", "multidict._multidict", "yaml._yaml", "cryptography.hazmat.bindings._rust"]
)
def test_a_module_without_symbols_and_debug_information_still_loads(name: str, tmp_path: Path) -> None:
    module = Path(str(importlib.import_module(name).__file__))
    lean = tmp_path / module.name
    lean.write_bytes(elf.cut(module.read_bytes()))
    assert lean.stat().st_size < module.stat().st_size
    assert elf.read(lean.read_bytes()) == elf.read(module.read_bytes())
    assert elf.cut(lean.read_bytes()) == lean.read_bytes(), "nothing is left to remove"
    load = f"import importlib.machinery as m; m.ExtensionFileLoader('{name}', '{lean}').load_module()"
    subprocess.run([sys.executable, "-c", load], check=True, env={**os.environ, "LD_BIND_NOW": "1"})


def test_a_module_names_its_machine_and_its_libraries() -> None:
    module = elf.read(uvloop_module().read_bytes())
    assert module.machine == debian.own_architecture()
    assert "libc.so.6" in module.needed


def test_files_for_another_machine_and_missing_libraries_are_faults(tmp_path: Path) -> None:
    data = uvloop_module().read_bytes()
    (tmp_path / "lib").mkdir()
    for name in elf.read(data).needed:
        (tmp_path / "lib" / name).touch()
    (tmp_path / "module.so").write_bytes(for_machine(data, 183))
    assert elf.faults(tmp_path, "arm64", ("lib",)) == []
    assert elf.faults(tmp_path, "amd64", ("lib",)) == ["/module.so is for arm64"]
    (tmp_path / "lib/libc.so.6").unlink()
    assert elf.faults(tmp_path, "arm64", ("lib",)) == ["/module.so needs libc.so.6, which is missing"]


# --- Debian's packages


@DPKG
def test_a_package_is_unpacked_below_usr_without_documents_or_scripts(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name, content in {
        "DEBIAN/control": "Package: demo\nVersion: 1.0-1\nArchitecture: arm64\nMaintainer: none\nDescription: a demo\n",
        "DEBIAN/postinst": f"#!/bin/sh\ntouch {tmp_path}/executed\n",
        "bin/demo": "a program",
        "lib/aarch64-linux-gnu/libdemo.so.1": "a library",
        "usr/share/doc/demo/copyright": "the licence",
        "usr/share/doc/demo/changelog": "changes",
        "usr/share/man/man1/demo.1": "a manual",
        "usr/share/ca-certificates/mozilla/a.crt": "certificate A\n",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content)
    for name in ("DEBIAN/postinst", "bin/demo"):
        (source / name).chmod(0o755)
    (source / "bin/again").symlink_to("demo")
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", source, tmp_path / "demo.deb"], check=True)
    base = debian.unpack([tmp_path / "demo.deb"], "arm64", tmp_path / "root")
    files = {str(path.relative_to(base.root)) for path in base.root.rglob("*") if path.is_file() or path.is_symlink()}
    assert {"usr/bin/demo", "usr/bin/again", "usr/lib/aarch64-linux-gnu/libdemo.so.1"} <= files
    assert "usr/share/doc/demo/copyright" in files
    assert not {name for name in files if "changelog" in name or "/man/" in name}
    assert (base.root / "bin").readlink() == Path("usr/bin")
    assert os.access(base.root / "usr/bin/demo", os.X_OK)
    assert base.packages() == {"demo": "1.0-1"}
    assert (base.root / "etc/ssl/certs/ca-certificates.crt").read_text() == "certificate A\n"
    assert "embereye:x:65532" in (base.root / "etc/passwd").read_text()
    assert not (tmp_path / "executed").exists()


# --- Python packages


def test_requirements_are_split_into_pins_with_their_hashes() -> None:
    text = (ROOT / "requirements.txt").read_text()
    pinned = packages.pins(text)
    assert sum(lines.count("--hash=") for lines in pinned.values()) == text.count("--hash=")
    assert set(packages.SOURCE_ONLY) <= pinned.keys()
    assert pinned["aiohttp"].startswith("aiohttp==")


def test_a_wheel_is_installed_without_tests_and_with_lean_modules(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(uvloop_module(), "demo/loop.so")
        for name in ("demo/__init__.py", "demo/tests/test_demo.py", "demo/__init__.pyi", "demo-1.data/scripts/demo"):
            archive.writestr(name, "")
        archive.writestr("demo-1.data/purelib/demo/more.py", "")
        archive.writestr("demo-1.dist-info/METADATA", "Name: demo\nVersion: 1\nRequires-Dist: gone>=2\n")
    packages.install(wheel, tmp_path / "site")
    files = {str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*") if path.is_file()}
    assert files == {"demo/loop.so", "demo/__init__.py", "demo/more.py", "demo-1.dist-info/METADATA"}
    assert (tmp_path / "site/demo/loop.so").stat().st_size < uvloop_module().stat().st_size / 2


@pytest.mark.parametrize(
    ("requirement", "faults"),
    [
        ("gone>=2", ["demo needs gone>=2, and nothing is there"]),
        ("demo>=2", ["demo needs demo>=2, and 1 is there"]),
        ("gone; sys_platform == 'win32'", []),
        ("gone; platform_machine == 'x86_64'", []),
        ("gone; extra == 'more'", []),
    ],
)
def test_requirements_that_no_package_fulfils_are_listed(tmp_path: Path, requirement: str, faults: list[str]) -> None:
    (tmp_path / "demo-1.dist-info").mkdir()
    (tmp_path / "demo-1.dist-info/METADATA").write_text(f"Name: demo\nVersion: 1\nRequires-Dist: {requirement}\n")
    assert packages.missing(packages.installed(tmp_path), "arm64") == faults


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
    assert share_ffmpeg(site_packages(tmp_path, 62, 62))
    theirs = tmp_path / "opencv_python_headless.libs"
    assert (theirs / "libavcodec-c4.so.62.28.100").read_text() == "av.libs"
    assert (theirs / "libx264-d6.so.165").exists(), "FFmpeg's dependencies are in its folder"
    assert not (theirs / "libssl-81.so.1.1.1k").exists()
    assert not (theirs / "libpng16-52.so.16.58.0").is_symlink()


def test_ffmpegs_of_different_abi_stay_two(tmp_path: Path) -> None:
    assert not share_ffmpeg(site_packages(tmp_path, 61, 62))
    assert (tmp_path / "opencv_python_headless.libs" / "libavcodec-c4.so.61.28.100").read_text() != "av.libs"
    assert (tmp_path / "opencv_python_headless.libs" / "libssl-81.so.1.1.1k").exists()


def test_opencv_uses_the_lapack_of_the_base(tmp_path: Path) -> None:
    theirs = tmp_path / "opencv_python_headless.libs"
    theirs.mkdir()
    for name in ("libopenblasp-r0-59ffcd50.3.15.so", "libgfortran-83c28eba.so.5.0.0", "libpng16-52.so.16.58.0"):
        (theirs / name).touch()
    use_lapack(tmp_path, "/usr/lib/liblapack.so.3")
    assert {path.name for path in theirs.iterdir()} == {"libopenblasp-r0-59ffcd50.3.15.so", "libpng16-52.so.16.58.0"}
    assert (theirs / "libopenblasp-r0-59ffcd50.3.15.so").readlink() == Path("/usr/lib/liblapack.so.3")


# --- archives


def build_layer(folder: Path, name: str = "layer") -> layout.Layer:
    (folder / "tree/var/lib/embereye").mkdir(parents=True, exist_ok=True)
    (folder / "tree/tmp").mkdir(exist_ok=True)
    (folder / "tree/program").write_text("program")
    (folder / "tree/program").chmod(0o700)
    home = "var/lib/embereye"
    return layout.pack_layer(folder / "tree", folder / f"{name}.tar.gz", owners={home: 65532}, private=(home,))


def build(folder: Path, architecture: str) -> layout.Image:
    settings: dict[str, Any] = {"Entrypoint": ["embereye"]}
    created = "2026-01-31T00:00:00Z"
    return layout.build_image("demo:1", architecture, [build_layer(folder)], created=created, settings=settings)


def read(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The content of a blob, which has the size and digest that `descriptor` says."""
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert len(content) == descriptor["size"]
    assert hashlib.sha256(content).hexdigest() == descriptor["digest"].partition(":")[2]
    return content


def test_the_same_content_makes_the_same_layer_with_owners_and_modes(tmp_path: Path) -> None:
    first = build_layer(tmp_path)
    os.utime(tmp_path / "tree/program", (1, 1))
    (tmp_path / "tree/program").chmod(0o755)
    assert build_layer(tmp_path, "again").digest == first.digest
    with tarfile.open(first.path) as archive:
        members = {each.name: (each.uid, each.mode) for each in archive}
    assert members["program"] == (0, 0o755)
    assert members["var/lib/embereye"] == (65532, 0o700)
    assert members["tmp"] == (0, 0o1777)


def test_docker_and_podman_read_an_archive_of_one_architecture(tmp_path: Path) -> None:
    image = build(tmp_path, "arm64")
    layout.write_archive([image], tmp_path / "image.tar")
    files = read(tmp_path / "image.tar")
    (listed,) = json.loads(files["manifest.json"])
    assert listed["RepoTags"] == ["demo:1"]
    config = json.loads(files[listed["Config"]])
    assert config["architecture"] == "arm64"
    (layer,) = listed["Layers"]
    with tarfile.open(fileobj=io.BytesIO(files[layer])) as archive:
        assert "program" in archive.getnames()
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert json.loads(blob(files, entry))["layers"][0]["digest"].endswith(layer.rpartition("/")[2])


def test_an_index_has_the_image_of_each_architecture(tmp_path: Path) -> None:
    images = [build(tmp_path, architecture) for architecture in ("amd64", "arm64")]
    layout.write_index(images, tmp_path / "index.tar")
    files = read(tmp_path / "index.tar")
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1"
    manifests = json.loads(blob(files, entry))["manifests"]
    assert [each["platform"]["architecture"] for each in manifests] == ["amd64", "arm64"]
    for each, image in zip(manifests, images, strict=True):
        manifest = json.loads(blob(files, each))
        assert json.loads(blob(files, manifest["config"]))["architecture"] == image.architecture
        assert [hashlib.sha256(blob(files, layer)).hexdigest() for layer in manifest["layers"]] == [
            layer.digest for layer in image.layers
        ]
