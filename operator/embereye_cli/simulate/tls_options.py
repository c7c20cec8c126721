"""How simulated devices speak TLS."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.process.lifecycle import UserError
from embereye.process.tls.client import ClientTls


def add_tls_options(parser: ArgumentParser) -> None:
    """Declare --tls and what belongs to it."""
    parser.add_argument("--tls", action="store_true", help="speak TLS, for a fleet with spec.access.tls")
    parser.add_argument("--ca", type=Path, metavar="FILE",
                        help="with --tls: authorities to trust, PEM; default: the system's")  # fmt: skip
    parser.add_argument("--cert", type=Path, metavar="FILE",
                        help="with --tls: the certificate to show, PEM, where the fleet asks for one")  # fmt: skip
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key, PEM; default: in the same file")
    parser.add_argument("--server-name", default="", metavar="NAME",
                        help="with --tls: a name in the shard's certificate; default: the host dialled")  # fmt: skip


def tls_options(arguments: Namespace, *, usable: bool = True, needed: str = "") -> ClientTls | None:
    """What was asked for; None: no TLS. UserError where files cannot be used, or TLS cannot without option `needed`."""
    if arguments.tls and not usable:
        raise UserError(f"--tls means nothing without {needed}")
    if not arguments.tls:
        if given := [name for name in ("ca", "cert", "key", "server_name") if getattr(arguments, name)]:
            raise UserError(f"--{given[0].replace('_', '-')} means nothing without --tls")
        return None
    tls = ClientTls(arguments.ca, arguments.cert, arguments.key, arguments.server_name)
    tls.check()
    return tls
