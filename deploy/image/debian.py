"""Makes the image's base from Debian's packages, for any architecture: a file system with Python and a shell.

Packages are fetched by apt, which checks Debian's signatures, and unpacked. Nothing of them is executed, so this needs
neither root nor a processor of that architecture. Files that maintainer scripts would write are written here.
"""

import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

RELEASE = "bookworm"  # its Python is 3.11, the oldest that the project supports
PYTHON = "3.11"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = "DEBIAN_MIRROR"  # URL with debian/ and debian-security/ below it; without it, this machine's sources are used
MAX_AGE_SECONDS = 86400.0  # packages are fetched again after a day, for Debian's security updates
# Python and the libraries of its modules, those of wheels (OpenCV uses LAPACK), certificates, time zones, fonts, and a
# shell for people who look into a container. The build fails if a library is missing.
PACKAGES = (
    *(f"python{PYTHON}", f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib"),
    *("python3", "python3-minimal", "media-types", "netbase", "tzdata", "ca-certificates", "openssl", "libssl3"),
    *("libc6", "libc-bin", "libgcc-s1", "libstdc++6", "gcc-12-base", "zlib1g", "libbz2-1.0", "liblzma5", "libcrypt1"),
    *("libexpat1", "libffi8", "libsqlite3-0", "libuuid1", "libncursesw6", "libtinfo6", "libreadline8"),
    *("liblapack3", "libblas3", "libgfortran5"),
    *("fonts-dejavu-core", "fonts-droid-fallback"),  # of PDF reports
    *("base-files", "dash", "coreutils", "libacl1", "libattr1", "libgmp10", "libpcre2-8-0", "libselinux1"),
)
FURTHER = {"amd64": ("libquadmath0",), "arm64": ()}  # which libgfortran5 needs
LAPACK = "liblapack.so.3"
# Left out: documents, except the licences; what installs and maintains a system; modules of Python for development.
UNNEEDED = re.compile(
    r"usr/share/(man|info|locale|lintian|bug|debconf|pixmaps|perl5|base-files)/"
    r"|usr/share/(applications|binfmts|python3|bash-completion|zoneinfo/(right|posix))/"
    r"|usr/share/doc/.*(?<!/copyright)$"
    r"|usr/lib/[^/]+/(gconv|audit|ossl-modules|engines-3|perl.*)/"
    r"|usr/lib/python3[^/]*/(idlelib|lib2to3|pydoc_data|test|ensurepip|tkinter|turtledemo)/"
    r"|usr/lib/python3[^/]*/(config-[^/]*/|lib-dynload/_(dbm|gdbm|crypt|ctypes_test|testclinic|test[^/]*)\.|lib-dynload/nis\.)"
    r"|usr/s?bin/(openssl|c_rehash|localedef|iconv(config)?|zdump|zic|ld\.so|ldd|catchsegv|pldd|tzselect|sotruss|sprof"
    r"|update-ca-certificates|py(3)?(compile|clean|versions)|pdb3.*|pydoc3.*|pygettext3.*|2to3.*)$"
    r"|usr/share/(fonts-droid-fallback|fonts/truetype/dejavu/DejaVu(SansMono|Serif))"
    r"|usr/(games|include|src|local/(games|src|include|man))/|var/(backups|lib/(python|dpkg))/|etc/(cron|dpkg|skel|update-motd)"
)
USR_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr, as every Debian has them now
USER = 65532
PASSWD = f"""root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
embereye:x:{USER}:{USER}:EmberEye:/tmp:/usr/sbin/nologin
"""
GROUP = f"""root:x:0:
nogroup:x:65534:
embereye:x:{USER}:
"""
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"
MULTIARCH = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
LOADERS = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class ImageError(Exception):
    """The obstacle to an image, and its remedy."""


def own_architecture() -> str:
    """Debian's name for the architecture of this machine. Raises ImageError if there is no image for it."""
    for architecture, machine in MACHINES.items():
        if platform.machine() == machine:
            return architecture
    raise ImageError(f"this machine is a {platform.machine()}: images are built on {' and '.join(MACHINES.values())}.")


def run(*command: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None) -> bytes:
    """Run a command and return its output; ImageError if it fails."""
    try:
        done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise ImageError(f"{command[0]} is missing: images are built on Debian or Ubuntu.") from error
    if done.returncode:
        raise ImageError(f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def sources() -> str:
    """The lines of sources.list. Raises ImageError if this machine knows no mirror of Debian."""
    mirror = os.environ.get(MIRROR, "").rstrip("/")
    known = [f"{mirror}/debian/", f"{mirror}/debian-security/"] if mirror else _mirrors()
    main, security = (
        next((uri for uri in known if uri.endswith(f"/{end}/")), "") for end in ("debian", "debian-security")
    )
    if not main or not security:
        raise ImageError(f"this machine has no sources of Debian: name a mirror in {MIRROR}.")
    suites = ((main, RELEASE), (main, f"{RELEASE}-updates"), (security, f"{RELEASE}-security"))
    return "".join(f"deb [signed-by={KEYRING}] {uri} {suite} main\n" for uri, suite in suites)


def _mirrors() -> list[str]:
    listed = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    return sorted(set(listed.decode().split()))


def fetch(architecture: str, folder: Path) -> list[Path]:
    """Fetch PACKAGES into `folder`/debs, at most once a day. Returns their files. Raises ImageError."""
    debs, stamp = folder / "debs", folder / "fetched"
    packages = (*PACKAGES, *FURTHER[architecture])
    lines = sources()
    wanted = lines + " ".join(packages)
    known = stamp.exists() and stamp.read_text() == wanted
    if known and time.time() - stamp.stat().st_mtime < MAX_AGE_SECONDS:
        return sorted(debs.glob("*.deb"))
    if not KEYRING.exists():
        raise ImageError(f"{KEYRING} is missing: install the package debian-archive-keyring.")
    for name in ("lists/partial", "archives/partial", "new"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(lines)
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferencesparts": "-",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "--quiet", *(f"--option={name}={value}" for name, value in options.items())]
    run(*apt, "update")
    run(*apt, "download", *packages, cwd=folder / "new")
    shutil.rmtree(debs, ignore_errors=True)
    (folder / "new").rename(debs)
    stamp.write_text(wanted)
    return sorted(debs.glob("*.deb"))


@dataclass(frozen=True)
class Base:
    """An unpacked base: the folder `root` has a file system for `architecture`."""

    root: Path
    architecture: str

    @property
    def libraries(self) -> tuple[str, ...]:
        """Folders in which the loader finds libraries, below the root."""
        return (f"usr/lib/{MULTIARCH[self.architecture]}", "usr/lib")

    @cached_property
    def python(self) -> list[str | Path]:
        """The start of a command that runs the base's Python on this machine, if it has that architecture."""
        folder = self.root / self.libraries[0]
        return [folder / LOADERS[self.architecture], "--library-path", folder, self.root / f"usr/bin/python{PYTHON}"]

    def compile(self, *folders: Path, root: Path) -> None:
        """Compile the Python files in `folders`, which will be below / as they are now below `root`.

        Their times are not compared later: a read-only root file system could not be compiled again anyhow.
        """
        environment = {"PYTHONHOME": str(self.root / "usr"), "PATH": os.environ["PATH"]}
        mode = ("--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/")
        run(*self.python, "-S", "-m", "compileall", "-q", *mode, *folders, environment=environment)

    def packages(self) -> dict[str, str]:
        """The packages in it, name → version."""
        fields = re.findall(r"^Package: (.+)\n(?:.+\n)*?Version: (.+)$", self._status.read_text(), re.MULTILINE)
        return dict(fields)

    @property
    def _status(self) -> Path:
        return self.root / "var/lib/dpkg/status"


def unpack(debs: Sequence[Path], architecture: str, root: Path) -> Base:
    """Unpack `debs` into the new folder `root`, and write what maintainer scripts would. Nothing is compiled."""
    for name in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "var/lib/dpkg", "etc/ssl/certs", "tmp", "run", "root"):
        (root / name).mkdir(parents=True)
    for name in ("proc", "sys", "dev", "home", "mnt", "opt", "srv", "var/tmp", "var/lib/embereye"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    paragraphs = []
    for deb in debs:
        _unpack(run("dpkg-deb", "--fsys-tarfile", deb), root)
        name, _, fields = run("dpkg-deb", "--field", deb).decode().strip().partition("\n")
        paragraphs.append(f"{name}\nStatus: install ok installed\n{fields}\n")
    base = Base(root, architecture)
    base._status.write_text("\n".join(paragraphs))
    files = {
        "passwd": PASSWD,
        "group": GROUP,
        "nsswitch.conf": NSSWITCH,
        "ssl/certs/ca-certificates.crt": _authorities(root),
    }
    for name, content in files.items():
        (root / "etc" / name).write_text(content)
    for name in ("certs/ca-certificates.crt", "certs"):
        link = root / "usr/lib/ssl" / {"certs": "certs", "certs/ca-certificates.crt": "cert.pem"}[name]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"/etc/ssl/{name}")
    for folder, name in (("blas", "libblas.so.3"), ("lapack", LAPACK)):  # as update-alternatives would
        (root / base.libraries[0] / name).symlink_to(f"{folder}/{name}")
    if not (root / "usr/bin/sh").is_symlink():
        (root / "usr/bin/sh").symlink_to("dash")
    return base


def _authorities(root: Path) -> str:
    """The certificates of all authorities that Debian trusts, as update-ca-certificates joins them."""
    return "".join(path.read_text() for path in sorted((root / "usr/share/ca-certificates").rglob("*.crt")))


def _unpack(content: bytes, root: Path) -> None:
    """Unpack a package's archive, without what is UNNEEDED, and with all programs and libraries below /usr."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            name = member.name.removeprefix("./").strip("/")
            if name.partition("/")[0] in USR_MERGED:
                name = f"usr/{name}"
            if (
                not name
                or name.removeprefix("usr/") in USR_MERGED
                or UNNEEDED.search(f"{name}/" if member.isdir() else name)
            ):
                continue
            target = root / name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            if member.issym():
                target.symlink_to(member.linkname)
            elif member.islnk():
                linked = member.linkname.removeprefix("./")
                os.link(root / (f"usr/{linked}" if linked.partition("/")[0] in USR_MERGED else linked), target)
            elif file := archive.extractfile(member):
                target.write_bytes(file.read())
                target.chmod(member.mode & 0o755)
