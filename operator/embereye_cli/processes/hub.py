"""Run the hub. `embereye hub backup`, `restore` and `migrate` copy what it has stored."""

import logging
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from embereye.hub.access.roles import Role, role_named
from embereye.hub.bus.options import BusOptions, read_bus
from embereye.hub.http.access.origin import AllowedHosts
from embereye.hub.mqtt.options import MqttOptions, read_broker
from embereye.hub.oidc.options import ProviderOptions, RoleRules
from embereye.hub.server import HubOptions, serve
from embereye.hub.webhooks.options import read_webhooks
from embereye.process import lifecycle
from embereye.process.files import restrict
from embereye.process.lifecycle import UserError
from embereye.units import SECOND, bracketed
from embereye_cli.processes.shard_options import add_identity
from embereye_cli.values import duration, port_number, size, split_names

logger = logging.getLogger(__name__)
PASSWORD = re.compile(r":[^/@]+@|password=")  # in a connection string


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options; defaults come from EMBEREYE_* variables."""

    def env(name: str, default: str = "") -> str:
        return os.environ.get(f"EMBEREYE_{name}", default)

    parser.add_argument("--host", type=bracketed, default=env("HOST", "[::]"),
                        help="address to listen on [EMBEREYE_HOST]")  # fmt: skip
    parser.add_argument("--outer-host", type=bracketed, default=env("OUTER_HOST"), metavar="HOST",
                        help="where people reach gRPC and console; default: --host [EMBEREYE_OUTER_HOST]")  # fmt: skip
    parser.add_argument("--grpc-port", type=port_number, default=env("GRPC_PORT", "50052"),
                        help="gRPC port [EMBEREYE_GRPC_PORT]")  # fmt: skip
    parser.add_argument("--http-port", type=port_number, default=env("HTTP_PORT", "8080"),
                        help="port of the console and the HTTP API [EMBEREYE_HTTP_PORT]")  # fmt: skip
    parser.add_argument("--metrics-port", type=port_number, default=env("METRICS_PORT", "0"), metavar="PORT",
                        help="port of /metrics and /healthz alone, for a Prometheus without a token; "
                        "default: none [EMBEREYE_METRICS_PORT]")  # fmt: skip
    parser.add_argument("--association-port", type=port_number, default=env("ASSOCIATION_PORT", "0"), metavar="PORT",
                        help="port of control loops that need the latency: delimited protobuf over TCP, and with --tls "
                        "over TLS; default: none [EMBEREYE_ASSOCIATION_PORT]")  # fmt: skip
    parser.add_argument("--association-socket", type=Path, default=env("ASSOCIATION_SOCKET") or None, metavar="PATH",
                        help="a Unix socket of the same, for this user's own processes; default: none "
                        "[EMBEREYE_ASSOCIATION_SOCKET]")  # fmt: skip
    parser.add_argument("--admin-token-file", type=Path, default=env("ADMIN_TOKEN_FILE") or None, metavar="FILE",
                        help="file with a token that may do everything, made where there is none and read again when "
                        "it changes; default: admin-token in the data folder [EMBEREYE_ADMIN_TOKEN_FILE]")  # fmt: skip
    parser.add_argument("--tls", type=Path, default=Path(env("TLS")) if env("TLS") else None, metavar="DIR",
                        help="folder with tls.crt and tls.key that people and programs are shown: the gRPC port and "
                        "that of the console then serve TLS alone [EMBEREYE_TLS]")  # fmt: skip
    add_identity(parser, 50053)
    parser.add_argument("--namespace", action="append", default=[env("HUB_NAMESPACES")], metavar="NAME,…",
                        help="shards of these namespaces alone may report, which takes --identity; may be repeated; "
                        "default: all [EMBEREYE_HUB_NAMESPACES]")  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path(env("DATA")) if env("DATA") else None,
                        help="folder of clips and, without --database, of all else; required "
                        "[EMBEREYE_DATA]")  # fmt: skip
    add_database(parser)
    parser.add_argument("--advertise", default=env("ADVERTISE"), metavar="HOST",
                        help="this hub is one of several on the same --database, which reach it there: one owns the "
                        "database, the others pass everything on to it and take over when it is gone "
                        "[EMBEREYE_ADVERTISE]")  # fmt: skip
    parser.add_argument("--retention", type=duration, default=env("RETENTION", "30d"),
                        help="how long history is kept, for example 12h or 30d [EMBEREYE_RETENTION]")  # fmt: skip
    parser.add_argument("--clips", type=size, default=env("CLIPS", "5G"),
                        help="room for clips, for example 500M or 20G; the oldest go [EMBEREYE_CLIPS]")  # fmt: skip
    parser.add_argument("--allowed-host", action="append", default=env("ALLOWED_HOSTS").split(), metavar="NAME",
                        help="a name that browsers may call the hub by, or *.DOMAIN; may be given again; addresses and "
                        "localhost always may [EMBEREYE_ALLOWED_HOSTS, separated by spaces]")  # fmt: skip
    parser.add_argument("--webhooks", type=Path, default=Path(env("WEBHOOKS")) if env("WEBHOOKS") else None,
                        metavar="FILE", help="JSON file that declares webhooks (docs/how-to/feeds.md); default: none "
                        "[EMBEREYE_WEBHOOKS]")  # fmt: skip
    _add_nats(parser, env)
    _add_mqtt(parser, env)
    _add_provider(parser, env)


def _add_nats(parser: ArgumentParser, env: Callable[..., str]) -> None:
    group = parser.add_argument_group(
        "NATS", "evidence is acknowledged by a stream in JetStream, as docs/how-to/hub-database.md says"
    )
    group.add_argument("--nats", default=env("NATS"), metavar="URL,…",
                       help="nats://HOST:4222 or tls://HOST:4222, of each server of one cluster; default: none, "
                       "evidence is acknowledged by the database [EMBEREYE_NATS]")  # fmt: skip
    group.add_argument("--nats-stream", default=env("NATS_STREAM", "embereye"), metavar="NAME",
                       help="made where there is none; two hubs at one NATS need two (%(default)s) "
                       "[EMBEREYE_NATS_STREAM]")  # fmt: skip
    group.add_argument("--nats-copies", type=int, default=env("NATS_COPIES", "1"), metavar="NUMBER",
                       help="servers that keep the stream, where it is made: 1, 3 or 5 (%(default)s) "
                       "[EMBEREYE_NATS_COPIES]")  # fmt: skip
    _add_folders(group.add_argument, env, "nats", "NATS", "username and password, or token")


def _add_folders(add: Callable[..., object], env: Callable[..., str], name: str, peer: str, files: str) -> None:
    """What is shown to `peer`, and whom to trust."""
    upper = name.upper()
    add(f"--{name}-credentials", type=Path, default=env(f"{upper}_CREDENTIALS") or None, metavar="DIR",
        help=f"folder with the files {files}, read anew for each connection; "
        f"default: none are asked for [EMBEREYE_{upper}_CREDENTIALS]")  # fmt: skip
    add(f"--{name}-tls", type=Path, default=env(f"{upper}_TLS") or None, metavar="DIR",
        help=f"folder with ca.crt and, where {peer} asks for a certificate, tls.crt and tls.key; "
        f"default: the system's authorities [EMBEREYE_{upper}_TLS]")  # fmt: skip


def bus_options(arguments: Namespace) -> BusOptions | None:
    """The NATS that the options name, if any; UserError where that is none."""
    if not arguments.nats:
        return None
    try:
        return read_bus(
            arguments.nats, stream=arguments.nats_stream, copies=arguments.nats_copies,
            credentials=arguments.nats_credentials, certificates=arguments.nats_tls,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(f"--{error}") from error


def _add_mqtt(parser: ArgumentParser, env: Callable[..., str]) -> None:
    group = parser.add_argument_group(
        "MQTT", "a broker is told what zones and devices are, as docs/how-to/mqtt.md says"
    )
    group.add_argument("--mqtt-broker", default=env("MQTT_BROKER"), metavar="URL",
                       help="mqtt://HOST:1883 or mqtts://HOST:8883; default: none [EMBEREYE_MQTT_BROKER]")  # fmt: skip
    _add_folders(group.add_argument, env, "mqtt", "the broker", "username and password")
    group.add_argument("--mqtt-prefix", default=env("MQTT_PREFIX", "embereye"), metavar="PREFIX",
                       help="of all topics; two hubs at one broker need two (%(default)s) "
                       "[EMBEREYE_MQTT_PREFIX]")  # fmt: skip
    group.add_argument("--mqtt-discovery", default=env("MQTT_DISCOVERY", "homeassistant"), metavar="PREFIX",
                       help="where Home Assistant looks for entities; empty: it is told of none (%(default)s) "
                       "[EMBEREYE_MQTT_DISCOVERY]")  # fmt: skip


def broker_options(arguments: Namespace) -> MqttOptions | None:
    """The broker that the options name, if any; UserError where that is none."""
    if not arguments.mqtt_broker:
        return None
    try:
        return read_broker(
            arguments.mqtt_broker, prefix=arguments.mqtt_prefix, discovery=arguments.mqtt_discovery,
            credentials=arguments.mqtt_credentials, certificates=arguments.mqtt_tls,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(f"--mqtt-{error}") from error


def _add_provider(parser: ArgumentParser, env: Callable[..., str]) -> None:
    group = parser.add_argument_group("identity provider", "people sign in to the console with OpenID Connect, too")
    group.add_argument("--oidc-issuer", default=env("OIDC_ISSUER"), metavar="URL",
                       help="the provider, as its tokens name it; default: none [EMBEREYE_OIDC_ISSUER]")  # fmt: skip
    group.add_argument("--oidc-client-id", default=env("OIDC_CLIENT_ID"), metavar="ID",
                       help="what it knows this hub by; its redirect URI there is https://HUB/login/oidc/callback "
                       "[EMBEREYE_OIDC_CLIENT_ID]")  # fmt: skip
    group.add_argument("--oidc-client-secret-file", type=Path, default=env("OIDC_CLIENT_SECRET_FILE") or None,
                       metavar="FILE", help="file with the client's secret, read anew each time; default: a public "
                       "client [EMBEREYE_OIDC_CLIENT_SECRET_FILE]")  # fmt: skip
    group.add_argument("--oidc-role", action="append", metavar="ROLE=VALUE", default=env("OIDC_ROLES").split(),
                       help="who has VALUE in the claim is viewer, operator or admin here; may be given again; the "
                       "highest counts, who has none is refused [EMBEREYE_OIDC_ROLES, by spaces]")  # fmt: skip
    group.add_argument("--oidc-claim", default=env("OIDC_CLAIM", "groups"), metavar="CLAIM",
                       help="the claim with such values; a dot leads into an object: realm_access.roles "
                       "[EMBEREYE_OIDC_CLAIM]")  # fmt: skip
    group.add_argument("--oidc-scopes", default=env("OIDC_SCOPES", "openid profile email"), metavar="SCOPES",
                       help="what the provider is asked for [EMBEREYE_OIDC_SCOPES]")  # fmt: skip


def _role_value(text: str) -> tuple[Role, str]:
    role, separator, value = text.partition("=")
    if not separator or not value:
        raise UserError(f'--oidc-role "{text}" is not of the form ROLE=VALUE, such as operator=fire-wardens')
    try:
        return role_named(role), value
    except ValueError as error:
        raise UserError(f"--oidc-role {error}") from error


def provider_options(arguments: Namespace) -> ProviderOptions | None:
    """The identity provider that the options name, if any; UserError where that is none."""
    if not arguments.oidc_issuer:
        return None
    if not arguments.oidc_client_id:
        raise UserError("--oidc-client-id is missing: name what the provider knows this hub by")
    if not arguments.oidc_role:
        raise UserError("--oidc-role is missing: without one nobody who signs in there may do anything here")
    values: dict[str, Role] = {}
    for role, value in map(_role_value, arguments.oidc_role):
        values[value] = max(role, values.get(value, role))
    try:
        return ProviderOptions(
            arguments.oidc_issuer, arguments.oidc_client_id, RoleRules(arguments.oidc_claim, values),
            arguments.oidc_client_secret_file, arguments.oidc_scopes,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(f"--oidc-issuer {error}") from error


def add_database(parser: ArgumentParser) -> None:
    """Declare where the hub's rows are kept."""
    parser.add_argument("--database", default=os.environ.get("EMBEREYE_DATABASE", ""), metavar="ADDRESS",
                        help="a PostgreSQL for the history and state, as postgresql://USER:PASSWORD@HOST/NAME or "
                        "@FILE, which is read again for each connection; default: SQLite in the data folder "
                        "[EMBEREYE_DATABASE]")  # fmt: skip


def run(arguments: Namespace) -> int:
    """Run a hub until SIGTERM or SIGINT, and end the process with its exit code, or return it to who writes more."""
    lifecycle.configure_logging(os.environ.get("EMBEREYE_LOG_LEVEL", "INFO"))
    if arguments.data is None:
        raise UserError("--data is missing: name the folder that the hub's database is to be kept in")
    # Pictures, and digests of tokens, are no strangers' affair, nor is what an earlier version wrote.
    os.umask(os.umask(0o077) | 0o007)
    restrict([arguments.data / name for name in ("hub.sqlite", "hub.sqlite-wal", "hub.sqlite-shm", "clips")], 0o007)
    if PASSWORD.search(arguments.database) and any(arguments.database in word for word in sys.argv):
        logger.warning(
            "every user of this machine reads the password in --database in the list of processes: write the address "
            "to a file, and say --database @FILE"
        )
    if arguments.advertise and not arguments.database:
        raise UserError("--advertise takes --database: hubs that share a history keep it in PostgreSQL")
    if arguments.advertise and not all((arguments.grpc_port, arguments.control_port, arguments.http_port)):
        raise UserError("--advertise takes ports that others can know: none of them may be 0")
    try:
        hosts = AllowedHosts(arguments.allowed_host)
    except ValueError as error:
        raise UserError(f"--allowed-host {error}") from error
    namespaces = split_names(arguments.namespace)
    if namespaces and not arguments.identity:
        raise UserError("--namespace takes --identity: without it nobody proves which namespace they are of")
    options = HubOptions(
        data=arguments.data,
        host=arguments.host,
        outer_host=arguments.outer_host,
        grpc_port=arguments.grpc_port,
        http_port=arguments.http_port,
        metrics_port=arguments.metrics_port,
        admin_token_file=Path(arguments.admin_token_file or arguments.data / "admin-token"),
        retention_ns=int(arguments.retention * SECOND),
        clips_bytes=arguments.clips,
        control_port=arguments.control_port,
        identity=arguments.identity,
        namespaces=namespaces,
        tls=arguments.tls,
        hosts=hosts,
        database=arguments.database,
        advertise=arguments.advertise,
        webhooks=read_webhooks(arguments.webhooks) if arguments.webhooks else (),
        bus=bus_options(arguments),
        mqtt=broker_options(arguments),
        oidc=provider_options(arguments),
        association_port=arguments.association_port,
        association_socket=Path(arguments.association_socket) if arguments.association_socket else None,
    )
    code = lifecycle.run(lambda stop: serve(options, stop))
    if not (arguments.profile or arguments.allocations):  # which are written after this
        lifecycle.leave(code)
    return code
