"""Options of both `embereye shard` commands; each has an environment variable for manifests."""

import os
from argparse import ArgumentParser, Namespace
from dataclasses import fields
from pathlib import Path

from embereye.shard.service import ShardOptions
from embereye.units import bracketed
from embereye_cli.values import port_number, seconds


def add_identity(parser: ArgumentParser, port: int) -> None:
    """Declare the certificate that identifies a process to hub, shards and operator, and its control port."""
    folder = os.environ.get("EMBEREYE_IDENTITY", "")
    parser.add_argument("--identity", type=Path, default=Path(folder) if folder else None, metavar="DIR",
                        help="folder with ca.crt, tls.crt and tls.key: the certificate that hub, shards and operator "
                        "check; without it, the control port is on loopback only [EMBEREYE_IDENTITY]")  # fmt: skip
    parser.add_argument("--control-port", type=port_number, default=os.environ.get("EMBEREYE_CONTROL_PORT", str(port)),
                        help="control port, for calls of hub, shards and operator [EMBEREYE_CONTROL_PORT]")  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on `parser`; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    parser.add_argument("--shard", default=env("SHARD", "shard-0"), help="this shard's name [EMBEREYE_SHARD]")
    parser.add_argument("--assignment", type=Path, default=Path(env("ASSIGNMENT", "assignment.json")),
                        help="file with the assignment; changes apply at once [EMBEREYE_ASSIGNMENT]")  # fmt: skip
    parser.add_argument("--hub", default=env("HUB", "127.0.0.1:50053"),
                        help="host:port of the hub's control port [EMBEREYE_HUB]")  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path(env("DATA")) if env("DATA") else None,
                        help="folder of the evidence spool; default: memory [EMBEREYE_DATA]")  # fmt: skip
    parser.add_argument("--linger", type=seconds, default=env("LINGER", "0"), metavar="SECONDS",
                        help="at the end, wait this long for an unreachable hub, if the spool is in memory "
                        "[EMBEREYE_LINGER]")  # fmt: skip
    parser.add_argument("--successor", type=seconds, default=env("SUCCESSOR", "0"), metavar="SECONDS",
                        help="at the end, continue this long until another process has this shard's name "
                        "[EMBEREYE_SUCCESSOR]")  # fmt: skip
    parser.add_argument("--host", type=bracketed, default=env("HOST", "[::]"),
                        help="address to listen on [EMBEREYE_HOST]")  # fmt: skip
    parser.add_argument("--outer-host", type=bracketed, default=env("OUTER_HOST"), metavar="HOST",
                        help="address where devices reach the gRPC port and the shared ones; default: --host "
                        "[EMBEREYE_OUTER_HOST]")  # fmt: skip
    add_identity(parser, 50055)
    for name, text in (
        ("tls", "folder with tls.crt and tls.key, the certificate for devices: the gRPC port then requires TLS"),
        ("client-ca", "folder with ca.crt: devices with TLS need a certificate of these authorities"),
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
        ("shared-tls", 0, "a second text port with TLS, also shared; 0: none"),
    ):
        variable = f"{name.upper().replace('-', '_')}_PORT"
        parser.add_argument(f"--{name}-port", type=port_number, default=env(variable, str(port)),
                            help=f"{text} [EMBEREYE_{variable}]")  # fmt: skip


def parse_options(arguments: Namespace) -> ShardOptions:
    """The options from the command line and the environment."""
    return ShardOptions(**{field.name: getattr(arguments, field.name) for field in fields(ShardOptions)})
