"""What `embereye up` is asked for, and what of it cannot be done, as `embereye service install` wants to know, too."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embereye.process.identity.authority import LIFE
from embereye.process.lifecycle import UserError
from embereye.units import bracketed
from embereye_operator.api.fleets import Fleet
from embereye_operator.runtime.local.identities import AUTHORITY
from embereye_operator.runtime.local.runtime import HOST, Reach, listen_ports, simulated_cameras

SIMULATE = "embereye.dev/simulate"
DEFAULT_HUB = f"{HOST}:50052"  # that commands ask, …
DEFAULT_CONSOLE = f"http://{HOST}:8080/"
OWN_TOKEN_FILE = Path(".embereye/hub/admin-token")  # … and the token that they show it, without being told


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """What `embereye up` is asked for."""

    manifests: Sequence[Path]
    data: Path  # folder of history, spools and logs
    seconds: float | None = None  # from when all is ready on, after which it stops by itself
    json: bool = False  # say where everything listens as one JSON object
    simulate: bool = True  # start simulators for fleets that ask for them
    console_port: int = 8080
    hub_port: int = 50052
    metrics_port: int = 0  # 0: a free one
    log_here: bool = False  # hub and shards log to this process's own standard error, not to files
    reach: Reach = field(default_factory=Reach)
    webhooks: object = None  # what `embereye hub --webhooks` reads; None: there are none
    allowed_hosts: Sequence[str] = ()  # names that browsers may call the console by
    certificate_life: float = LIFE.total_seconds()  # of those by which its processes know each other

    @property
    def hub(self) -> str:
        """The hub's gRPC port as this machine calls it."""
        return f"{bracketed(self.reach.inside)}:{self.hub_port}"

    @property
    def console(self) -> str:
        """The address of the console that people are told."""
        return f"http{'s' * self.reach.is_outer}://{bracketed(self.reach.advertised)}:{self.console_port}/"

    @property
    def token_file(self) -> Path:
        """Where the admin's token is."""
        return self.data / "hub" / "admin-token"

    def simulates(self, fleet: Fleet) -> bool:
        """Whether the fleet's devices are played."""
        return self.simulate and fleet.annotations.get(SIMULATE) == "true"

    def ports(self, fleet: Fleet) -> dict[int, str]:
        """The ports that `fleet` has listened on here, and what for."""
        wanted = {port: f"spec.listen.{name}" for name, port in listen_ports(fleet).items()}
        if self.simulates(fleet):
            wanted |= dict.fromkeys(simulated_cameras(fleet), "simulated cameras")
        return wanted

    def command(self, *words: str) -> str:
        """`embereye WORDS`, with what it needs to find this hub."""
        found = ["embereye", *words]
        if self.hub != DEFAULT_HUB:
            found += ["--hub", self.hub]
        if self.token_file != OWN_TOKEN_FILE:
            found += ["--token", f"@{self.token_file}"]
        if self.reach.is_outer:
            found += ["--ca", str(self.data / "identity" / AUTHORITY / "ca.crt"), "--server-name", "localhost"]
        return shlex.join(found)

    def link_command(self) -> str:
        """The command that prints an address of the console which signs one browser in."""
        console = ("--console", self.console) if self.console != DEFAULT_CONSOLE else ()
        return self.command("access", "link", *console)


@dataclass(frozen=True)
class WantedPort:
    """Who wants a port."""

    what: str
    remedy: str
    host: str  # where it is listened on


def check_access(options: UpOptions, fleets: Iterable[Fleet]) -> None:
    """UserError where others would be listened to unasked: on loopback nobody has to say who may speak."""
    if not options.reach.is_outer:
        return
    for fleet in fleets:
        if fleet.spec.access is None:
            raise UserError(
                f"{fleet.key} does not say which devices it listens to, and --listen lets in everybody who reaches "
                "this machine: say spec.access with networks or tokensRef, or open: true"
            )


def wanted_ports(options: UpOptions, fleets: Iterable[Fleet]) -> dict[int, WantedPort]:
    """Who wants which port; UserError where two want one, which both would listen on without a word."""
    host = options.reach.listen
    wanted: dict[int, WantedPort] = {}
    for port, what, option, where in (
        (options.hub_port, "the hub", "--hub-port", host),
        (options.console_port, "the console", "--console-port", host),
        (options.metrics_port, "metrics", "--metrics-port", HOST),
    ):
        if port in wanted:
            raise UserError(f"port {port} is wanted by {what} and by {wanted[port].what}: choose another with {option}")
        if port:
            wanted[port] = WantedPort(what, f"choose another with {option}", where)
    for fleet in fleets:
        for port, name in options.ports(fleet).items():
            what = f"{fleet.key} ({name})"
            if port in wanted:
                sentence = f"port {port} is wanted by {what} and by {wanted[port].what}: give one of them another"
                raise UserError(sentence)
            wanted[port] = WantedPort(what, "stop what listens there or change the manifest", host)
    return wanted
