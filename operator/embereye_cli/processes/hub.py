"""`embereye hub`: run the hub."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from embereye.hub.http.origin import AllowedHosts
from embereye.hub.server import HubOptions, serve
from embereye.process import lifecycle
from embereye.process.lifecycle import UserError
from embereye.units import SECOND
from embereye_cli.processes.shard_options import add_identity
from embereye_cli.values import duration, size


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    parser.add_argument("--host", default=env("HOST", "[::]"), help="address to listen on [EMBEREYE_HOST]")
    parser.add_argument("--grpc-port", type=int, default=int(env("GRPC_PORT", "50052")),
                        help="gRPC port [EMBEREYE_GRPC_PORT]")  # fmt: skip
    parser.add_argument("--http-port", type=int, default=int(env("HTTP_PORT", "8080")),
                        help="port of the console and the HTTP API [EMBEREYE_HTTP_PORT]")  # fmt: skip
    parser.add_argument("--metrics-port", type=int, default=int(env("METRICS_PORT", "0")), metavar="PORT",
                        help="port of /metrics and /healthz alone, for a Prometheus without a token; "
                        "default: none [EMBEREYE_METRICS_PORT]")  # fmt: skip
    parser.add_argument("--admin-token-file", type=Path, default=env("ADMIN_TOKEN_FILE") or None, metavar="FILE",
                        help="file with a token that may do everything, made where there is none and read again when "
                        "it changes; default: admin-token in the data folder [EMBEREYE_ADMIN_TOKEN_FILE]")  # fmt: skip
    add_identity(parser, 50053)
    parser.add_argument("--data", type=Path, default=Path(env("DATA")) if env("DATA") else None,
                        help="folder of the database; required [EMBEREYE_DATA]")  # fmt: skip
    parser.add_argument("--retention", type=duration, default=env("RETENTION", "30d"),
                        help="how long history is kept, for example 12h or 30d [EMBEREYE_RETENTION]")  # fmt: skip
    parser.add_argument("--clips", type=size, default=env("CLIPS", "5G"),
                        help="room for clips, for example 500M or 20G; the oldest go [EMBEREYE_CLIPS]")  # fmt: skip
    parser.add_argument("--allowed-host", action="append", default=env("ALLOWED_HOSTS").split(), metavar="NAME",
                        help="a name that browsers may call the hub by, or *.DOMAIN; may be given again; addresses and "
                        "localhost always may [EMBEREYE_ALLOWED_HOSTS, separated by spaces]")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Run a hub until SIGTERM or SIGINT; returns the exit code."""
    lifecycle.configure_logging(os.environ.get("EMBEREYE_LOG_LEVEL", "INFO"))
    if arguments.data is None:
        raise UserError("--data is missing: name the folder that the hub's database is to be kept in")
    try:
        hosts = AllowedHosts(arguments.allowed_host)
    except ValueError as error:
        raise UserError(f"--allowed-host {error}") from error
    options = HubOptions(
        data=arguments.data,
        host=arguments.host,
        grpc_port=arguments.grpc_port,
        http_port=arguments.http_port,
        metrics_port=arguments.metrics_port,
        admin_token_file=Path(arguments.admin_token_file or arguments.data / "admin-token"),
        retention_ns=int(arguments.retention * SECOND),
        clips_bytes=arguments.clips,
        control_port=arguments.control_port,
        identity=arguments.identity,
        hosts=hosts,
    )
    return lifecycle.run(lambda stop: serve(options, stop))
