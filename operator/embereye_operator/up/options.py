"""The options of `embereye up`, and checks that `embereye service install` shares.

`embereye up` and `embereye service install` parse into `UpOptions` and run the same checks before anything starts. So a
service that is installed also starts: ports are distinct, simulators exist, and with `--listen` every fleet says who
may send.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from embereye.process.identity.authority import LIFE
from embereye.process.lifecycle import UserError
from embereye.units import bracketed
from embereye_operator.api.fleets import Fleet
from embereye_operator.runtime.local.runtime import HOST, Reach, simulated_cameras
from embereye_operator.up import site

SIMULATE = "embereye.dev/simulate"


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
    hub_arguments: Sequence[str] = ()  # further ones of `embereye hub`, by add-ons
    allowed_hosts: Sequence[str] = ()  # host names of the console that browsers may use
    base_path: str = ""  # path of the console behind a proxy, such as "/fire"; "": the root
    certificate_life: float = LIFE.total_seconds()  # seconds; lifetime of the processes' certificates

    @property
    def hub(self) -> str:
        """Return the hub's gRPC address for this machine."""
        return f"{bracketed(self.reach.inside)}:{self.hub_port}"

    @property
    def console(self) -> str:
        """Return the console's URL for people."""
        return (
            f"http{'s' * self.reach.is_outer}://{bracketed(self.reach.advertised)}:{self.console_port}{self.base_path}/"
        )

    @property
    def token_file(self) -> Path:
        """The file with the admin's token."""
        return site.token_file(self.data)

    @property
    def site(self) -> site.Site:
        """The note that lets other commands find this hub."""
        local = f"http{'s' * self.reach.is_outer}://{bracketed(self.reach.inside)}:{self.console_port}{self.base_path}"
        return site.Site(hub=self.hub, console=self.console, local_console=local, tls=self.reach.is_outer)

    def is_simulated(self, fleet: Fleet) -> bool:
        """True if the fleet's devices are simulated."""
        return self.simulate and fleet.annotations.get(SIMULATE) == "true"

    def ports(self, fleet: Fleet) -> dict[int, str]:
        """Return the ports that `fleet` needs on this machine, and their purpose."""
        wanted = {port: f"spec.listen.{name}" for name, port in fleet.ports.items()}
        if self.is_simulated(fleet):
            wanted |= dict.fromkeys(simulated_cameras(fleet), "simulated cameras")
        return wanted

    def command(self, *words: str) -> str:
        """`embereye WORDS`, with the data folder by which it finds this hub."""
        folder = () if self.data == site.DATA else ("--data", str(self.data))
        return shlex.join(["embereye", *words, *folder])

    def link_command(self) -> str:
        """The command that prints an address of the console that signs one browser in."""
        return self.command("access", "link")


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


def check_simulators(options: UpOptions, fleets: Iterable[Fleet]) -> None:
    """Raise UserError if a fleet's devices are to be simulated and the simulators are not installed."""
    if find_spec("embereye.sim") is None:
        for fleet in filter(options.is_simulated, fleets):
            raise UserError(
                f"{fleet.key}: {SIMULATE}: the simulators are not installed: install the wheel embereye_simulate of "
                "this release, or start with --no-sim"
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
