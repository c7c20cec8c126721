"""Installs the pinned Python packages for any architecture, from wheels, and only what a service needs of them."""

import hashlib
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from deploy.image import elf
from deploy.image.debian import LAPACK, MACHINES, MULTIARCH, PYTHON, run
from deploy.image.opencv import share_ffmpeg, use_lapack

SOURCE_ONLY = ("http-ece",)  # pinned packages in Python alone that are published without wheels
GLIBC_MINOR = 36  # Debian's: wheels for a newer glibc 2.x do not run
# Tests, sources and headers, type stubs, numpy's tools for developers, and a library of rich for coloured source code.
UNNEEDED = re.compile(
    r"(^|/)(tests|SelfTest)/|\.(pyi|pyx|pxd|c|h|hpp|lib|a)$|^numpy/(f2py|_core/include|distutils|_pyinstaller)/"
    r"|^numpy/_core/(_simd|_\w*_tests)[^/]*\.so$|^pygments/"
    r"|^pygments-[^/]*/(?!METADATA|licenses/)"
)
LAUNCHER = "#!/opt/packages/bin/python\nimport sys\nfrom {module} import {name}\nsys.exit({name}())\n"
_PIN = re.compile(r"^([a-z0-9][\w.-]*)==[^\n]+ \\\n(?:    --hash=\S+(?: \\)?\n)+", re.MULTILINE)


def pins(requirements: str) -> dict[str, str]:
    """Split a file of requirements into name → its lines, with the hashes."""
    return {match[1]: match[0] for match in _PIN.finditer(requirements)}


def fetch_wheels(requirements: str, architecture: str, cache: Path) -> Path:
    """Fetch the wheels of all `requirements`; pip compares their hashes. Returns their folder.

    The folder is named after the requirements, so that nothing is fetched twice. Raises ImageError, for example if a
    package has no wheel for `architecture`.
    """
    digest = hashlib.sha256("".join((requirements, *SOURCE_ONLY)).encode()).hexdigest()[:12]
    folder = cache / f"wheels-{architecture}-{digest}"
    if folder.exists():
        return folder
    new = cache / f"wheels-{architecture}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    pinned = pins(requirements)
    (new / "wheels.txt").write_text("".join(text for name, text in pinned.items() if name not in SOURCE_ONLY))
    (new / "sources.txt").write_text("".join(pinned[name] for name in SOURCE_ONLY))
    machine = MACHINES[architecture]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 4, -1)] + [f"manylinux2014_{machine}"]
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    python = ("--python-version", PYTHON, "--implementation", "cp")
    abis = [word for abi in (f"cp{PYTHON.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)]
    fitting = [*python, *abis, *(word for name in platforms for word in ("--platform", name))]
    run(
        *pip,
        "download",
        "--no-deps",
        "--only-binary=:all:",
        *fitting,
        "--dest",
        new,
        "--requirement",
        new / "wheels.txt",
    )
    built = ("wheel", "--no-deps", "--no-build-isolation", "--no-binary=:all:")
    run(*pip, *built, "--wheel-dir", new, "--requirement", new / "sources.txt")
    for older in cache.glob(f"wheels-{architecture}-*"):
        shutil.rmtree(older)
    new.rename(folder)
    return folder


def build_wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of a project of ours into `folder`, without its tests."""
    ignored = shutil.ignore_patterns("tests", "__pycache__", "*.egg-info")
    files = ("LICENSE", "NOTICE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
    needed = (*files, "docs/runbooks", "operator", "protos", "service")
    source = folder / "source"
    source.mkdir()
    for name in needed if (project / "protos").exists() else ("",):
        if (project / name).is_dir():
            shutil.copytree(project / name, source / name, ignore=ignored, dirs_exist_ok=True)
        elif (project / name).exists():
            shutil.copy(project / name, source / name)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # for the compiler of protos
    environment = {**os.environ, "PATH": path}
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source, environment=environment)
    [wheel] = folder.glob("*.whl")
    return wheel


def install(wheel: Path, target: Path) -> None:
    """Unpack `wheel` into the folder of packages `target`, without what is UNNEEDED and without debug information."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            name = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", entry.filename)
            if entry.is_dir() or UNNEEDED.search(name) or re.match(r"[^/]+\.data/", name):
                continue
            data = archive.read(entry)
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(elf.cut(data) if elf.is_elf(data) else data)


def install_all(wheels: Path, root: Path, architecture: str) -> None:
    """Install `wheels` into a virtual environment /opt/packages below `root`, which also finds /opt/embereye."""
    home = root / "opt/packages"
    site = home / f"lib/python{PYTHON}/site-packages"
    site.mkdir(parents=True)
    for wheel in sorted(wheels.glob("*.whl")):
        install(wheel, site)
    share_ffmpeg(site)
    use_lapack(site, f"/usr/lib/{MULTIARCH[architecture]}/{LAPACK}")
    (site / "embereye.pth").write_text("/opt/embereye\n")
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n")
    (home / "bin").mkdir()
    for name in ("python", "python3", f"python{PYTHON}"):
        (home / "bin" / name).symlink_to(f"/usr/bin/python{PYTHON}")


def install_own(wheel: Path, root: Path) -> None:
    """Install our `wheel` into /opt/embereye below `root`, with its commands."""
    target = root / "opt/embereye"
    install(wheel, target)
    (target / "bin").mkdir(exist_ok=True)
    for package in distributions(path=[str(target)]):
        for entry in package.entry_points.select(group="console_scripts"):
            script = target / "bin" / entry.name
            script.write_text(LAUNCHER.format(module=entry.module, name=entry.attr))
            script.chmod(0o755)


def installed(*folders: Path) -> list[Distribution]:
    """The packages that are installed in `folders`."""
    return list(distributions(path=list(map(str, folders))))


def missing(packages: list[Distribution], architecture: str) -> list[str]:
    """List the requirements of `packages` that none of them fulfils, as `pip check` does."""
    versions = {plain(package.metadata["Name"]): package.version for package in packages}
    environment: Mapping[str, str] = {
        "python_version": PYTHON, "python_full_version": f"{PYTHON}.0", "platform_machine": MACHINES[architecture],
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": "",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
    problems = []
    for package in packages:
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate(dict(environment)):
                continue
            version = versions.get(plain(requirement.name))
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                problems.append(f"{package.metadata['Name']} needs {text}, and {version or 'nothing'} is there")
    return problems


def plain(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":  # FOLDER: build the wheel of the service into it
    print(build_wheel(Path(__file__).parents[2], Path(sys.argv[1])))
