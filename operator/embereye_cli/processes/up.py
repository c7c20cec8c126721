"""Run fleets on this machine: hub, shards and console as local processes instead of pods."""

import argparse
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.addons import addon_modules
from embereye.process.addresses import outward_address
from embereye.process.identity.authority import LIFE
from embereye.process.lifecycle import UserError
from embereye_cli.options import add_options, options_of
from embereye_cli.parser import Parser
from embereye_cli.processes import hub
from embereye_cli.values import duration_or_seconds, named_port, port_number
from embereye_operator.api.shared import API_VERSIONS
from embereye_operator.runtime.local.runtime import HOST, Reach
from embereye_operator.up.folder import load_fleets, load_webhooks, locked
from embereye_operator.up.options import SIMULATE, UpOptions
from embereye_operator.up.up import Up

HUB_OPTIONS = [option for group in hub.addon_groups() for option in group.options if option.for_up]
API_VERSION = API_VERSIONS[-1]  # of new manifests


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "manifests",
        nargs="+",
        type=Path,
        metavar="FLEET.yaml",
        help="SensorFleet and CameraFleet manifests, and ConfigMaps with their devices",
    )
    parser.add_argument("--data", type=Path, default=Path(".embereye"), metavar="DIR",
                        help="folder of history, spools and logs; other commands find it (default: "
                        ".embereye)")  # fmt: skip
    parser.add_argument("--for", dest="seconds", type=duration_or_seconds, metavar="DURATION",
                        help="stop this long after everything is ready: 90s, 5m, 2h; exit code 1 if it is not ready "
                        "within this time, at least two minutes")  # fmt: skip
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object with all addresses once everything is ready")  # fmt: skip
    parser.add_argument("--no-sim", action="store_true",
                        help=f"do not start simulators for fleets annotated {SIMULATE}")  # fmt: skip
    parser.add_argument("--console-port", type=named_port, default=8080, help="port of the console (default: 8080)")
    parser.add_argument("--hub-port", type=named_port, default=50052, help="gRPC port of the hub (default: 50052)")
    parser.add_argument("--metrics-port", type=port_number, default=0,
                        help="port of /metrics about the fleets (default: a free one, printed by --json)")  # fmt: skip
    parser.add_argument("--listen", default=HOST, metavar="ADDRESS",
                        help="address where devices and people reach this machine; :: or 0.0.0.0: all addresses. The "
                        "hub then uses TLS, and fleets need spec.access (default: 127.0.0.1)")  # fmt: skip
    parser.add_argument("--advertise", default="", metavar="HOST",
                        help="name or address to publish and to put into certificates "
                        "(default: --listen, or with :: and 0.0.0.0 this machine's address)")  # fmt: skip
    parser.add_argument("--shard-ports", type=int, default=0, metavar="PORT",
                        help="first of the shards' own gRPC ports, for firewalls (default: free ports)")  # fmt: skip
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME",
                        help="another host name of the console that browsers can use; repeatable")  # fmt: skip
    parser.add_argument(hub.BASE_PATH.name, type=hub.base_path, default="", metavar=hub.BASE_PATH.metavar,
                        help=hub.BASE_PATH.help)  # fmt: skip
    parser.add_argument("--webhooks", type=Path, default=None, metavar="FILE",
                        help="YAML or JSON file that declares webhooks (docs/how-to/feeds.md)")  # fmt: skip
    add_options(parser, HUB_OPTIONS)
    for addon in addon_modules("up"):
        addon.add_arguments(parser)
    parser.add_argument("--logs", choices=["files", "stderr"], default="files",
                        help="where hub and shards log: files in --data, or this process's stderr (default: "
                        "files)")  # fmt: skip
    parser.add_argument("--certificate-life", type=duration_or_seconds, default=LIFE.total_seconds(),
                        metavar="DURATION",
                        help="life of the certificates between hub, shards and operator, at least 30s; renewed after "
                        "two thirds (default: 7d)")  # fmt: skip


def _reach(arguments: argparse.Namespace) -> Reach:
    """The addresses where this machine is reached; UserError if --listen is no address."""
    listen = arguments.listen.strip("[]")
    try:
        address = ipaddress.ip_address(listen)
    except ValueError as error:
        sentence = f'--listen "{listen}" is not an address of this machine, such as 192.168.1.10, 0.0.0.0 or ::'
        raise UserError(sentence) from error
    if arguments.shard_ports and not 1024 <= arguments.shard_ports <= 65000:
        raise UserError(f"--shard-ports {arguments.shard_ports} is not between 1024 and 65000")
    advertised = arguments.advertise or (outward_address() if address.is_unspecified else listen)
    return Reach(listen, advertised, arguments.shard_ports)


def _hub_arguments(arguments: argparse.Namespace) -> list[str]:
    """The options of the hub's add-ons, read once as the hub does; UserError if one is wrong."""
    words = [word for option in HUB_OPTIONS for word in option.words(arguments)]
    words += [word for addon in addon_modules("up") for word in addon.hub_arguments(arguments)]
    parser = Parser(prog="embereye hub")
    hub.add_arguments(parser)
    hub.addons(parser.parse_args([*words, "--data", str(arguments.data / "hub")]))
    return words


def read_options(arguments: argparse.Namespace) -> UpOptions:
    """The options that the arguments give; UserError for an impossible value."""
    if not 30 <= arguments.certificate_life <= LIFE.total_seconds() * 50:
        raise UserError(
            "--certificate-life is not between 30s and a year. Processes need some seconds to read a certificate."
        )
    return options_of(
        UpOptions,
        arguments,
        simulate=not arguments.no_sim,
        log_here=arguments.logs == "stderr",
        reach=_reach(arguments),
        allowed_hosts=arguments.allowed_host,
        hub_arguments=_hub_arguments(arguments),
        webhooks=load_webhooks(arguments.webhooks) if arguments.webhooks else None,
    )


def check_manifests(paths: Sequence[Path], changed: Mapping[Path, bytes]) -> None:
    """Check manifests as `embereye up` does, with the content that some are going to have; UserError."""
    load_fleets(paths, changed)


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C, SIGTERM or the end of --for."""
    lifecycle.configure_logging("WARNING")
    fleets = load_fleets(arguments.manifests)
    options = read_options(arguments)
    with locked(options.data) as killed:
        return lifecycle.run(lambda stop: Up(options, fleets).run(stop, patient=killed))
