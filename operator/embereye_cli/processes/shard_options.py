"""Options of both `embereye shard` commands; each has an environment variable for manifests."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.shard.service import ShardOptions
from embereye.units import bracketed
from embereye_cli.options import Option, add_options, identity_options, options_of
from embereye_cli.values import port_number, seconds

# fmt: off
OPTIONS = (
    Option("--shard", "this shard's name", default="shard-0"),
    Option("--assignment", "file with the assignment; changes apply at once", default="assignment.json", type=Path),
    Option("--hub", "host:port of the hub's control port", default="127.0.0.1:50053"),
    Option("--data", "folder of the evidence spool; default: memory", type=Path),
    Option("--linger", "at the end, wait this long for an unreachable hub, if the spool is in memory", default="0",
           type=seconds, metavar="SECONDS"),
    Option("--successor", "at the end, continue this long until another process has this shard's name", default="0",
           type=seconds, metavar="SECONDS"),
    Option("--host", "address to listen on", default="[::]", type=bracketed),
    Option("--outer-host", "address where devices reach the gRPC port and the shared ones; default: --host",
           type=bracketed, metavar="HOST"),
    *identity_options(50055),
    Option("--tls", "folder with tls.crt and tls.key, the certificate for devices: the gRPC port then requires TLS",
           type=Path, metavar="DIR"),
    Option("--client-ca", "folder with ca.crt: devices with TLS need a certificate of these authorities", type=Path,
           metavar="DIR"),
    *(
        Option(f"--{name}-port", text, default=str(port), type=port_number)
        for name, port, text in (
            ("grpc", 50051, "gRPC port"),
            ("tcp", 9001, "port of the text listener (sensors)"),
            ("tls", 0, "port of the text listener with TLS (sensors); 0: none"),
            ("metrics", 9100, "port of /metrics and /healthz"),
            ("http", 0, "port of readings by HTTP (sensors), which shards on one machine share; 0: none"),
            ("shared-grpc", 0, "a second gRPC port, shared with other shards on this machine; 0: none"),
            ("shared-tcp", 0, "a second text port, shared with other shards on this machine; 0: none"),
            ("shared-tls", 0, "a second text port with TLS, also shared; 0: none"),
        )
    ),
)
# fmt: on


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on `parser`; defaults come from EMBEREYE_* variables."""
    add_options(parser, OPTIONS)


def parse_options(arguments: Namespace) -> ShardOptions:
    """The options from the command line and the environment."""
    return options_of(ShardOptions, arguments)
