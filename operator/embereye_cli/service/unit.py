"""The systemd unit that runs `embereye up`, and where what belongs to it stands."""

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embereye.process.lifecycle import UserError

NAME = "embereye.service"
DATA = Path("/var/lib/embereye")  # what StateDirectory=embereye makes


@dataclass(frozen=True)
class Places:
    """Where files stand; `root` is put before each, for images and for tests."""

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
        """History, spools, identity: a link, of systemd's own, to /var/lib/private/embereye."""
        return self.root / DATA.relative_to("/")

    @property
    def is_this_machine(self) -> bool:
        """Whether it is the running system's own."""
        return self.root == Path("/")


def build_unit(python: str, manifests: Sequence[str], options: Sequence[str]) -> str:
    """The unit's text: `python` runs `embereye up` with manifests of /etc/embereye and `options`.

    It runs as a user that systemd makes for it, who can read this installation and write its state directory alone.
    """
    arguments = ["-m", "embereye_cli", "up", "--data", str(DATA), "--logs", "stderr", *options]
    words = [_quoted(word) for word in [*arguments, *(f"/etc/embereye/{name}" for name in manifests)]]
    # The program's path alone is not searched for variables.
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
# It ends what hangs of its processes, and systemd ends it where it hangs itself.
WatchdogSec=60
# Its processes are stopped by itself, in the order that loses nothing; what is left then is killed.
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
    """`word` as systemd reads it again: neither specifiers nor variables, and with quotes where it needs them."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(character.isspace() or character in "\"'\\;" for character in plain) else plain


def systemctl(*arguments: str) -> str:
    """Run systemctl, and return what it printed; UserError says what it said where it fails."""
    command = shutil.which("systemctl")
    if command is None or not Path("/run/systemd/system").is_dir():
        raise UserError("systemd does not run here: use --no-start, or run `embereye up` by what runs services here")
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"systemctl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def stays_up(ask: Callable[..., str] = systemctl, pause: float = 1.0) -> bool:
    """Whether the service, which was just started, still runs after ten pauses, and was not started again meanwhile.

    systemd calls a service started that ends a moment later, and has it start again for ever.
    """
    state = ""
    for _ in range(10):
        time.sleep(pause)
        said = dict(line.split("=", 1) for line in ask("show", "--property=ActiveState,NRestarts", NAME).splitlines())
        state = said["ActiveState"]
        if state not in {"active", "activating"} or said["NRestarts"] != "0":
            return False
    return state == "active"
