"""The options that both `embereye shard` commands have; each has an environment variable for manifests."""

import os
from argparse import ArgumentParser, Namespace
from dataclasses import fields
from pathlib import Path

from embereye.shard.service import ShardOptions
from embereye.units import bracketed
from embereye_cli.values import port_number, seconds


def add_identity(parser: ArgumentParser, port: int) -> None:
    """Declare how a process proves itself to others of ours, and where they call it."""
    folder = os.environ.get("EMBEREYE_IDENTITY", "")
    parser.add_argument("--identity", type=Path, default=Path(folder) if folder else None, metavar="DIR",
                        help="folder with ca.crt, tls.crt and tls.key, by which it proves itself to hub, shards and "
                        "operator; without it they are answered on loopback alone [EMBEREYE_IDENTITY]")  # fmt: skip
    parser.add_argument("--control-port", type=port_number, default=os.environ.get("EMBEREYE_CONTROL_PORT", str(port)),
                        help="port where they call [EMBEREYE_CONTROL_PORT]")  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on `parser`; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    parser.add_argument("--shard", default=env("SHARD", "shard-0"), help="this shard's name [EMBEREYE_SHARD]")
    parser.add_argument("--assignment", type=Path, default=Path(env("ASSIGNMENT", "assignment.json")),
                        help="file with the assignment, followed as it changes [EMBEREYE_ASSIGNMENT]")  # fmt: skip
    parser.add_argument("--hub", default=env("HUB", "127.0.0.1:50053"),
                        help="host:port of the hub's control port [EMBEREYE_HUB]")  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path(env("DATA")) if env("DATA") else None,
                        help="folder of the evidence spool; none: in memory [EMBEREYE_DATA]")  # fmt: skip
    parser.add_argument("--linger", type=seconds, default=env("LINGER", "0"), metavar="SECONDS",
                        help="wait so long at the end for a hub that is away, where the spool does not outlive the"
                        " process [EMBEREYE_LINGER]")  # fmt: skip
    parser.add_argument("--successor", type=seconds, default=env("SUCCESSOR", "0"), metavar="SECONDS",
                        help="go on so long at the end until another process answers under this shard's name"
                        " [EMBEREYE_SUCCESSOR]")  # fmt: skip
    parser.add_argument("--host", type=bracketed, default=env("HOST", "[::]"),
                        help="address to listen on [EMBEREYE_HOST]")  # fmt: skip
    parser.add_argument("--outer-host", type=bracketed, default=env("OUTER_HOST"), metavar="HOST",
                        help="address where devices reach the gRPC port and the shared ones; default: --host "
                        "[EMBEREYE_OUTER_HOST]")  # fmt: skip
    add_identity(parser, 50055)
    for name, text in (
        ("tls", "folder with tls.crt and tls.key that devices are shown: the gRPC port then serves TLS alone"),
        ("client-ca", "folder with ca.crt: devices that speak TLS have to show a certificate of these authorities"),
    ):
        variable = name.upper().replace("-", "_")
        parser.add_argument(f"--{name}", type=Path, default=Path(env(variable)) if env(variable) else None,
                            metavar="DIR", help=f"{text} [EMBEREYE_{variable}]")  # fmt: skip
    for name, port, text in (
        ("grpc", 50051, "gRPC port"),
        ("tcp", 9001, "port of the text listener (sensors)"),
        ("tls", 0, "port of the text listener with TLS (sensors); 0: none"),
        ("metrics", 9100, "port of /metrics and /healthz"),
        ("shared-grpc", 0, "a second gRPC port, shared with other shards on this machine; 0: none"),
        ("shared-tcp", 0, "a second text port, shared with other shards on this machine; 0: none"),
        ("shared-tls", 0, "the same with TLS; 0: none"),
    ):
        variable = f"{name.upper().replace('-', '_')}_PORT"
        parser.add_argument(f"--{name}-port", type=port_number, default=env(variable, str(port)),
                            help=f"{text} [EMBEREYE_{variable}]")  # fmt: skip


def parse_options(arguments: Namespace) -> ShardOptions:
    """What was given on the command line, or in the environment."""
    return ShardOptions(**{field.name: getattr(arguments, field.name) for field in fields(ShardOptions)})
