"""TLS options of simulated devices."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye.process.tls.client import ClientTls


def add_tls_options(parser: ArgumentParser) -> None:
    """Declare --tls and the options for its certificates."""
    parser.add_argument("--tls", action="store_true", help="use TLS, for a fleet with spec.access.tls")
    parser.add_argument("--ca", type=Path, metavar="FILE",
                        help="with --tls: PEM file of trusted authorities; default: the system's")  # fmt: skip
    parser.add_argument("--cert", type=Path, metavar="FILE",
                        help="with --tls: PEM file of the client certificate, if the fleet requires one")  # fmt: skip
    parser.add_argument("--key", type=Path, metavar="FILE", help="PEM file of its key; default: the same file")
    parser.add_argument("--server-name", default="", metavar="NAME",
                        help="with --tls: a name in the shard's certificate; default: the host dialled")  # fmt: skip


def tls_options(arguments: Namespace, *, usable: bool = True, needed: str = "") -> ClientTls | None:
    """The TLS settings; None: no TLS. UserError if a file cannot be used, or if the option `needed` is missing."""
    if arguments.tls and not usable:
        raise UserError(f"--tls has no effect without {needed}")
    if not arguments.tls:
        if given := [name for name in ("ca", "cert", "key", "server_name") if getattr(arguments, name)]:
            raise UserError(f"--{given[0].replace('_', '-')} has no effect without --tls")
        return None
    tls = ClientTls(arguments.ca, arguments.cert, arguments.key, arguments.server_name)
    tls.check()
    return tls
