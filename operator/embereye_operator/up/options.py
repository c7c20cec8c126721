"""The options of `embereye up`, and checks that `embereye service install` shares."""

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
DEFAULT_HUB = f"{HOST}:50052"  # default hub of commands, …
DEFAULT_CONSOLE = f"http://{HOST}:8080/"
OWN_TOKEN_FILE = Path(".embereye/hub/admin-token")  # … and their default token


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The options of `embereye up`."""

    manifests: Sequence[Path]
    data: Path  # folder of history, spools and logs
    seconds: float | None = None  # run time after everything is ready; None: until stopped
    json: bool = False  # print all addresses as one JSON object
    simulate: bool = True  # start simulators for fleets that ask for them
    console_port: int = 8080
    hub_port: int = 50052
    metrics_port: int = 0  # 0: a free one
    log_here: bool = False  # hub and shards log to standard error instead of files
    reach: Reach = field(default_factory=Reach)
    webhooks: object = None  # content for `embereye hub --webhooks`; None: no webhooks
    allowed_hosts: Sequence[str] = ()  # host names of the console that browsers may use
    certificate_life: float = LIFE.total_seconds()  # seconds; lifetime of the processes' certificates

    @property
    def hub(self) -> str:
        """Return the hub's gRPC address for this machine."""
        return f"{bracketed(self.reach.inside)}:{self.hub_port}"

    @property
    def console(self) -> str:
        """Return the console's URL for people."""
        return f"http{'s' * self.reach.is_outer}://{bracketed(self.reach.advertised)}:{self.console_port}/"

    @property
    def token_file(self) -> Path:
        """Return the file with the admin's token."""
        return self.data / "hub" / "admin-token"

    def is_simulated(self, fleet: Fleet) -> bool:
        """True if the fleet's devices are simulated."""
        return self.simulate and fleet.annotations.get(SIMULATE) == "true"

    def ports(self, fleet: Fleet) -> dict[int, str]:
        """Return the ports that `fleet` needs on this machine, and their purpose."""
        wanted = {port: f"spec.listen.{name}" for name, port in listen_ports(fleet).items()}
        if self.is_simulated(fleet):
            wanted |= dict.fromkeys(simulated_cameras(fleet), "simulated cameras")
        return wanted

    def command(self, *words: str) -> str:
        """Return `embereye WORDS` with the options to find this hub."""
        words_and_options = ["embereye", *words]
        if self.hub != DEFAULT_HUB:
            words_and_options += ["--hub", self.hub]
        if self.token_file != OWN_TOKEN_FILE:
            words_and_options += ["--token", f"@{self.token_file}"]
        if self.reach.is_outer:
            words_and_options += [
                "--ca",
                str(self.data / "identity" / AUTHORITY / "ca.crt"),
                "--server-name",
                "localhost",
            ]
        return shlex.join(words_and_options)

    def link_command(self) -> str:
        """Return the command that prints a console URL which signs one browser in."""
        console = ("--console", self.console) if self.console != DEFAULT_CONSOLE else ()
        return self.command("access", "link", *console)


@dataclass(frozen=True)
class WantedPort:
    """The reason why a port is needed."""

    purpose: str
    remedy: str
    host: str  # address to listen on


def check_access(options: UpOptions, fleets: Iterable[Fleet]) -> None:
    """Raise UserError if other machines could send data without access rules; on loopback none are needed."""
    if not options.reach.is_outer:
        return
    for fleet in fleets:
        if fleet.spec.access is None:
            raise UserError(
                f"{fleet.key}: spec.access is not set, and with --listen any machine could send data: "
                "set spec.access with networks or tokensRef, or with open: true"
            )


def wanted_ports(options: UpOptions, fleets: Iterable[Fleet]) -> dict[int, WantedPort]:
    """Return all needed ports; UserError if two purposes share one, which the system would silently allow."""
    host = options.reach.listen
    wanted: dict[int, WantedPort] = {}
    for port, purpose, option, address in (
        (options.hub_port, "the hub", "--hub-port", host),
        (options.console_port, "the console", "--console-port", host),
        (options.metrics_port, "metrics", "--metrics-port", HOST),
    ):
        if port in wanted:
            raise UserError(
                f"port {port} is wanted by {purpose} and by {wanted[port].purpose}: choose another with {option}"
            )
        if port:
            wanted[port] = WantedPort(purpose, f"choose another with {option}", address)
    for fleet in fleets:
        for port, name in options.ports(fleet).items():
            purpose = f"{fleet.key} ({name})"
            if port in wanted:
                sentence = f"port {port} is wanted by {purpose} and by {wanted[port].purpose}: change one of them"
                raise UserError(sentence)
            wanted[port] = WantedPort(purpose, "stop the program that listens there, or change the manifest", host)
    return wanted
