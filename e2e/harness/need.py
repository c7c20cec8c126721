"""The programs and data that tests need beyond Python packages. Without them, tests are skipped with a remedy.

A test is marked (`@pytest.mark.needs(FFMPEG)`), a fixture calls `FFMPEG.require()`. Nothing is built or installed here,
because that would count against a test's time limit.
"""

import importlib.util
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Need:
    """A program or data set that a machine has or lacks; `remedy` is the instruction that provides it."""

    name: str
    remedy: str
    present: Callable[[], bool]
    target: str = ""  # the make target that provides it, if there is one

    @property
    def reason(self) -> str:
        """The reason that pytest shows for a skipped test."""
        return f"needs {self.name}: {self.remedy}"

    def require(self) -> None:
        """Skip the test, or the module during its import, if this is missing."""
        if not self.present():
            pytest.skip(self.reason, allow_module_level=True)


@cache
def program(name: str) -> Path | None:
    """The path of a Kubernetes program or Helm, in KUBEBUILDER_ASSETS or built by `make programs`; None without it."""
    folders = [Path(assets)] if (assets := os.environ.get("KUBEBUILDER_ASSETS")) else []
    for folder in [*folders, _built()]:
        if os.access(folder / name, os.X_OK):
            return folder / name
    return None


@cache
def _built() -> Path:
    """The folder of built programs. Without arguments, the script builds nothing and prints the folder."""
    command = [ROOT / "e2e" / "cluster" / "binaries"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip())


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(map(program, names))


def _commands(*names: str) -> Callable[[], bool]:
    return lambda: all(map(shutil.which, names))


PROCESS_NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")  # prefix of a command


@cache
def _has_process_namespaces() -> bool:
    try:
        return subprocess.run([*PROCESS_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's bindings work with Debian's Python only


@cache
def _has_rtsp_server() -> bool:
    check = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    try:
        return subprocess.run([SYSTEM_PYTHON, "-c", check], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _has_cluster() -> bool:
    cache = Path(os.environ.get("EMBEREYE_CACHE") or ROOT / ".cache")
    return any(cache.glob("cluster/clusters/*/ready"))


def _has_grafana_types() -> bool:
    return shutil.which("node") is not None and (GRAFANA_TYPES_FOLDER / "node_modules/.bin/tsc").exists()


@cache
def postgres_programs() -> Path:
    """The folder of the newest PostgreSQL release's programs, which Debian leaves out of PATH; empty without one."""
    folders = [Path(path).parent for name in ("postgres", "initdb") if (path := shutil.which(name))]
    folders += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True
    )
    return next(
        (folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), Path()
    )


def _has_postgres() -> bool:
    return postgres_programs() != Path() and importlib.util.find_spec("psycopg") is not None


def _server_program(name: str) -> Path:
    """The path of a server, which Debian puts into /usr/sbin; empty without it."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return Path(path) if path else Path()


def mosquitto_program() -> Path:
    """The path of Mosquitto's server; empty without it."""
    return _server_program("mosquitto")


def nginx_program() -> Path:
    """The path of nginx; empty without it."""
    return _server_program("nginx")


def _has_mosquitto() -> bool:
    return mosquitto_program() != Path() and importlib.util.find_spec("aiomqtt") is not None


def nats_program() -> Path:
    """The path of NATS' server: built by `make peers`, or installed on the machine, which may be older."""
    path = program("nats-server") or shutil.which("nats-server")
    return Path(path) if path else Path()


def _has_nats() -> bool:
    modules = ("nats", "embereye.addons.nats")  # the library, and the add-on, whose folder may be deleted
    return nats_program() != Path() and all(map(importlib.util.find_spec, modules))


def _has_oidc_provider() -> bool:
    return shutil.which("node") is not None and (OIDC_PROVIDER_FOLDER / "node_modules/oidc-provider").exists()


def _has_browser() -> bool:
    modules = BROWSER_FOLDER / "node_modules"
    has_driver = all((modules / name).exists() for name in ("playwright-core", "axe-core"))
    return has_driver and all(map(shutil.which, ("node", "chromium")))


def _packages(*names: str) -> Callable[[], bool]:
    return lambda: all(map(importlib.util.find_spec, names))


def _recordings(*names: str) -> Callable[[], bool]:
    return lambda: all((RECORDINGS / name).exists() for name in names)


GRAFANA_TYPES_FOLDER = ROOT / ".cache" / "grafana"
OIDC_PROVIDER_FOLDER = ROOT / ".cache" / "oidc"
BROWSER_FOLDER = ROOT / ".cache" / "browser"
TRAEFIK_PROGRAM = ROOT / ".cache" / "traefik" / "bin" / "traefik"
ENVOY_PROGRAM = ROOT / ".cache" / "envoy" / "envoy"
CERTIFICATES = ROOT / ".cache" / "cert-manager" / "crd-certificates.yaml"  # a Helm template
RECORDINGS = ROOT / ".." / "shared" / "data" / "device"  # their licence forbids distribution

_build = "`make test` builds that first, with Go 1.21 or later; or name a folder that has it in KUBEBUILDER_ASSETS"
_install = "`make peers` installs it"
API_SERVER = Need("kube-apiserver and etcd", _build, _programs("kube-apiserver", "etcd"), "make test")
CONTROLLER_MANAGER = Need("kube-controller-manager", _build, _programs("kube-controller-manager"), "make test")
KUBECTL = Need("kubectl", _build, _programs("kubectl"), "make test")
GATEWAY_API = Need("Gateway API's CRDs", _build, _programs("gateway-api"), "make test")
KEDA_CRDS = Need("KEDA's CRDs", _build, _programs("keda-crds"), "make test")
LUA = Need("Argo CD's Lua", _build, _programs("glua"), "make test")
HELM = Need("Helm", _build, _programs("helm"), "make test")
GO_CLIENT = Need("our client in Go", _build, _programs("embereye-valve", "embereye-control.test"), "make test")
STUB_SHARD = Need("a stub of a shard in Go", _build, _programs("stub-shard"), "make test")
COSIGN = Need("cosign", "`e2e/cluster/binaries cosign` builds it in five minutes", _programs("cosign"))
SYSTEMD = Need("systemd-analyze", "install Debian's package systemd", _commands("systemd-analyze"))
OPENSSL = Need("openssl", "install Debian's package openssl", _commands("openssl"))
FFMPEG = Need("FFmpeg", _install, _commands("ffmpeg", "ffprobe"), "make peers")
GSTREAMER = Need("GStreamer", _install, _commands("gst-launch-1.0"), "make peers")
RTSP_SERVER = Need("gst-rtsp-server", _install, _has_rtsp_server, "make peers")
PROMETHEUS = Need("Prometheus and promtool", _install, _commands("prometheus", "promtool"), "make peers")
ALERTMANAGER = Need("Alertmanager", _install, _commands("prometheus-alertmanager"), "make peers")
_peers = "`make peers` builds it, with Go 1.21 or later"
GO2RTC = Need("go2rtc", _peers, _programs("go2rtc"), "make peers")
MEDIAMTX = Need("mediamtx", _peers, _programs("mediamtx"), "make peers")
NGINX = Need("nginx", _install, lambda: nginx_program() != Path(), "make peers")
TRAEFIK = Need(
    "Traefik", "`make peers` fetches it for x86-64", lambda: os.access(TRAEFIK_PROGRAM, os.X_OK), "make peers"
)
ENVOY = Need("Envoy", "`make peers` fetches it for x86-64", lambda: os.access(ENVOY_PROGRAM, os.X_OK), "make peers")
GRAFANA_TYPES = Need(
    "Grafana's types", "`make peers` fetches them where npm is installed", _has_grafana_types, "make peers"
)
OIDC_PROVIDER = Need(
    "npm's oidc-provider", "`make peers` fetches it where npm is installed", _has_oidc_provider, "make peers"
)
BROWSER = Need(
    "Chromium, playwright-core and axe-core",
    "`make peers` fetches them where npm is installed",
    _has_browser,
    "make peers",
)
FIREFOX = Need("Firefox", _install, _commands("firefox-esr"), "make peers")
CERT_MANAGER = Need(
    "cert-manager's kinds", "`make peers` fetches them where go is installed", CERTIFICATES.exists, "make peers"
)
CLUSTER = Need("a kind cluster", "`make e2e` brings it up", _has_cluster, "make e2e")
FIRST_PROCESS = Need(
    "a namespace of processes", "run it where users may make namespaces, not in a chroot", _has_process_namespaces
)
PARQUET = Need("pyarrow and duckdb", "`make install` installs them", _packages("pyarrow", "duckdb"), "make install")
POSTGRES = Need("PostgreSQL", _install, _has_postgres, "make peers")
NATS = Need("nats-server", _peers, _has_nats, "make peers")
MOSQUITTO = Need("Mosquitto", _install, _has_mosquitto, "make peers")
CAPTURE = Need(
    "a real device's recording",
    f"put capture.bin and temperatures.npy into {os.path.relpath(RECORDINGS, ROOT)}",
    _recordings("capture.bin", "temperatures.npy"),
)
RECORDINGS_16_BIT = RECORDINGS.with_name("device16")
CAPTURE_16_BIT = Need(
    "a real device's recording in 16-bit resolution",
    f"put capture.bin and temperatures.npy into {os.path.relpath(RECORDINGS_16_BIT, ROOT)}",
    lambda: all((RECORDINGS_16_BIT / name).exists() for name in ("capture.bin", "temperatures.npy")),
)
CLIPS = ROOT / ".." / "shared" / "data"  # the same
FOOTAGE = Need(
    "recordings of fires",
    f"put video/ and video2/, each with labels.json, into {os.path.relpath(CLIPS, ROOT)}",
    lambda: all((CLIPS / name / "labels.json").exists() for name in ("video", "video2")),
)
NEEDS = tuple(value for value in list(globals().values()) if isinstance(value, Need))
# Of the fixtures that several test files use. `stored` and `bus` have one only with some of their values.
FIXTURES = {"postgres": POSTGRES, "own_postgres": POSTGRES, "own_nats": NATS}
VALUES = {("stored", "postgres"): POSTGRES, ("bus", "jetstream"): NATS}


def of_fixtures(fixtures: Iterable[str], values: Mapping[str, object]) -> list[Need]:
    """Return the needs of a test with these `fixtures`, and with these `values` of its parameters by name."""
    known = [FIXTURES.get(name) for name in fixtures] + [VALUES.get((name, str(values[name]))) for name in values]
    return list(dict.fromkeys(need for need in known if need))


def summary(reasons: Iterable[str], needs: Iterable[Need] = NEEDS) -> str:
    """Count the skipped tests by the missing need in one line, most first; empty if none was skipped."""
    counted = Counter(reasons)
    missing = sorted((need for need in needs if counted[need.reason]), key=lambda need: -counted[need.reason])
    lacks = [f"{need.name} {counted[need.reason]}" + f" ({need.target})" * bool(need.target) for need in missing]
    return f"skipped; missing: {', '.join(lacks)}" if lacks else ""
