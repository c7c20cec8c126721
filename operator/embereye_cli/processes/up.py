"""Run fleets on this machine: the manifests and decisions of a cluster, with local processes instead of pods."""

import argparse
import ipaddress
from pathlib import Path

from embereye.process import lifecycle
from embereye.process.addresses import outward_address
from embereye.process.identity.authority import LIFE
from embereye.process.lifecycle import UserError
from embereye_cli.values import duration_or_seconds, named_port, port_number
from embereye_operator.runtime.local.runtime import HOST, Reach
from embereye_operator.up.folder import load_fleets, load_webhooks, locked
from embereye_operator.up.options import SIMULATE, UpOptions
from embereye_operator.up.up import Up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "manifests",
        nargs="+",
        type=Path,
        metavar="FLEET.yaml",
        help="SensorFleet and CameraFleet manifests, and the ConfigMaps that they take devices from",
    )
    parser.add_argument("--data", type=Path, default=Path(".embereye"), metavar="DIR",
                        help="where history, spools and logs are kept (default: .embereye)")  # fmt: skip
    parser.add_argument("--for", dest="seconds", type=duration_or_seconds, metavar="DURATION",
                        help="stop by itself this long after all is ready: 90s, 5m, 2h; with exit code 1 where it "
                        "is not ready within that, or two minutes where that is less")  # fmt: skip
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object that says where everything listens, once all is ready")  # fmt: skip
    parser.add_argument("--no-sim", action="store_true",
                        help=f"do not start simulators for fleets annotated {SIMULATE}")  # fmt: skip
    parser.add_argument("--console-port", type=named_port, default=8080, help="port of the console (default: 8080)")
    parser.add_argument("--hub-port", type=named_port, default=50052, help="gRPC port of the hub (default: 50052)")
    parser.add_argument("--metrics-port", type=port_number, default=0,
                        help="port of /metrics about the fleets (default: a free one, which --json tells)")  # fmt: skip
    parser.add_argument("--listen", default=HOST, metavar="ADDRESS",
                        help="address that devices and people reach this machine at; :: or 0.0.0.0: all that it has. "
                        "The hub then speaks TLS, and fleets have to say spec.access (default: 127.0.0.1)")  # fmt: skip
    parser.add_argument("--advertise", default="", metavar="HOST",
                        help="the name or address that they are told, and that certificates have "
                        "(default: --listen, or with :: and 0.0.0.0 this machine's address)")  # fmt: skip
    parser.add_argument("--shard-ports", type=int, default=0, metavar="PORT",
                        help="the first of the ports where senders over gRPC reach a shard of their own, for firewalls "
                        "(default: free ones)")  # fmt: skip
    parser.add_argument("--allowed-host", action="append", default=[], metavar="NAME",
                        help="another name that browsers may call the console by; may be given again")  # fmt: skip
    parser.add_argument("--webhooks", type=Path, default=None, metavar="FILE",
                        help="YAML or JSON file that declares webhooks, as docs/how-to/feeds.md says")  # fmt: skip
    parser.add_argument("--logs", choices=["files", "stderr"], default="files",
                        help="of hub and shards: to files in --data, or with this one's (default: files)")  # fmt: skip
    parser.add_argument("--certificate-life", type=duration_or_seconds, default=LIFE.total_seconds(),
                        metavar="DURATION",
                        help="of the certificates by which its processes know each other; renewed after two thirds "
                        "of it, at least 30s (default: 7d)")  # fmt: skip


def _reach(arguments: argparse.Namespace) -> Reach:
    """From where this machine is reached; UserError where --listen is no address."""
    listen = arguments.listen.strip("[]")
    try:
        address = ipaddress.ip_address(listen)
    except ValueError as error:
        sentence = f'--listen "{listen}" is no address of this machine, such as 192.168.1.10, 0.0.0.0 or ::'
        raise UserError(sentence) from error
    if arguments.shard_ports and not 1024 <= arguments.shard_ports <= 65000:
        raise UserError(f"--shard-ports {arguments.shard_ports} is not between 1024 and 65000")
    told = arguments.advertise or (outward_address() if address.is_unspecified else listen)
    return Reach(listen, told, arguments.shard_ports)


def read_options(arguments: argparse.Namespace) -> UpOptions:
    """What the arguments ask for; UserError where a value makes no sense."""
    if not 30 <= arguments.certificate_life <= LIFE.total_seconds() * 50:
        raise UserError("--certificate-life is not between 30s and a year: processes need some seconds to read them")
    return UpOptions(
        manifests=arguments.manifests,
        data=arguments.data,
        seconds=arguments.seconds,
        json=arguments.json,
        simulate=not arguments.no_sim,
        console_port=arguments.console_port,
        hub_port=arguments.hub_port,
        metrics_port=arguments.metrics_port,
        certificate_life=arguments.certificate_life,
        log_here=arguments.logs == "stderr",
        reach=_reach(arguments),
        allowed_hosts=arguments.allowed_host,
        webhooks=load_webhooks(arguments.webhooks) if arguments.webhooks else None,
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C, SIGTERM or the end of --for."""
    lifecycle.configure_logging("WARNING")
    fleets = load_fleets(arguments.manifests)
    options = read_options(arguments)
    with locked(options.data) as killed:
        return lifecycle.run(lambda stop: Up(options, fleets).run(stop, patient=killed))
