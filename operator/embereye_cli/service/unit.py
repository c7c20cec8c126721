"""The systemd unit that runs `embereye up`, and the paths of its files.

`embereye service install` writes the text of `build_unit` and starts it with `systemctl`; `remove` undoes that. The
unit runs `embereye up` as a dynamic user that can write to its state directory only. systemd reports a service as
started even if it ends at once, so `is_stable` watches it for ten pauses.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.process.lifecycle import UserError

NAME = "embereye.service"
DATA = Path("/var/lib/embereye")  # created by StateDirectory=embereye


@dataclass(frozen=True)
class Places:
    """The paths of the service's files, below `root` for images and tests."""

    root: Path = Path("/")

    @property
    def unit(self) -> Path:
        """The unit file."""
        return self.root / "etc/systemd/system" / NAME

    @property
    def manifests(self) -> Path:
        """The folder of the fleets' manifests."""
        return self.root / "etc/embereye"

    @property
    def data(self) -> Path:
        """The folder of history, spools and identity: systemd makes it a link to /var/lib/private/embereye."""
        return self.root / DATA.relative_to("/")

    @property
    def is_this_machine(self) -> bool:
        """True if the paths are those of the running system."""
        return self.root == Path("/")


def build_unit(python: str, manifests: Sequence[str], options: Sequence[str]) -> str:
    """The unit's text: `python` runs `embereye up` with `manifests` of /etc/embereye and `options`.

    It runs as a dynamic user that can read this installation, and write to its state directory only.
    """
    arguments = ["-m", "embereye_cli", "up", "--data", str(DATA), "--logs", "stderr", *options]
    words = [_quoted(word) for word in [*arguments, *(f"/etc/embereye/{name}" for name in manifests)]]
    # systemd expands no variables in the program's path.
    command = " ".join([_quoted(python).replace("$$", "$"), *words])
    return f"""\
[Unit]
Description=EmberEye: watches buildings and yards for fire
Documentation=https://embereye.dev
Wants=network-online.target
After=network-online.target time-sync.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
Restart=always
RestartSec=2
# `embereye up` ends processes that hang; systemd ends `embereye up` if it hangs.
WatchdogSec=60
# `embereye up` stops its processes in the order that loses nothing; systemd kills the rest.
KillMode=mixed
TimeoutStopSec=30
DynamicUser=yes
StateDirectory=embereye
StateDirectoryMode=0700
WorkingDirectory={DATA}
Environment=PYTHONUNBUFFERED=1 HOME={DATA}
LimitNOFILE=65536
OOMPolicy=continue
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
PrivateTmp=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


def _quoted(word: str) -> str:
    """`word` quoted for a unit file, without specifiers and variables."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(character.isspace() or character in "\"'\\;" for character in plain) else plain


def systemctl(*arguments: str) -> str:
    """Run systemctl and return its output; UserError with its message if it fails."""
    command = shutil.which("systemctl")
    if command is None or not Path("/run/systemd/system").is_dir():
        raise UserError(
            "systemd does not run here. Use --no-start, or run `embereye up` with this machine's service manager."
        )
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"systemctl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def is_stable(ask: Callable[..., str] = systemctl, pause: float = 1.0) -> bool:
    """True if the service that was just started still runs after ten pauses without a restart.

    systemd reports a service as started even if it ends a moment later, and restarts it forever.
    """
    state = ""
    for _ in range(10):
        time.sleep(pause)
        shown = dict(line.split("=", 1) for line in ask("show", "--property=ActiveState,NRestarts", NAME).splitlines())
        state = shown["ActiveState"]
        if state not in {"active", "activating"} or shown["NRestarts"] != "0":
            return False
    return state == "active"
