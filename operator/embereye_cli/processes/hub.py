"""Run the hub. `embereye hub backup`, `restore` and `migrate` copy its stored history."""

import logging
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from embereye.hub.addon import Addon
from embereye.hub.http.access.origin import AllowedHosts
from embereye.hub.http.base_path import read_base_path
from embereye.hub.mqtt.options import MqttOptions, read_broker
from embereye.hub.oidc.options import ProviderOptions, RoleRules
from embereye.hub.roles import Role, role_named
from embereye.hub.server import HubOptions, serve
from embereye.hub.webhooks.options import read_webhooks
from embereye.process import lifecycle
from embereye.process.addons import addon_modules
from embereye.process.files import restrict
from embereye.process.lifecycle import UserError
from embereye.units import SECOND, bracketed
from embereye_cli.processes.peer_options import add_folders, env
from embereye_cli.processes.shard_options import add_identity
from embereye_cli.values import duration, port_number, size, split_names

logger = logging.getLogger(__name__)
PASSWORD = re.compile(r":[^/@]+@|password=")  # in a connection string


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options; defaults come from EMBEREYE_* variables."""
    parser.add_argument("--host", type=bracketed, default=env("HOST", "[::]"),
                        help="address to listen on [EMBEREYE_HOST]")  # fmt: skip
    parser.add_argument("--outer-host", type=bracketed, default=env("OUTER_HOST"), metavar="HOST",
                        help="address where people reach gRPC and console; default: --host "
                        "[EMBEREYE_OUTER_HOST]")  # fmt: skip
    parser.add_argument("--grpc-port", type=port_number, default=env("GRPC_PORT", "50052"),
                        help="gRPC port [EMBEREYE_GRPC_PORT]")  # fmt: skip
    parser.add_argument("--http-port", type=port_number, default=env("HTTP_PORT", "8080"),
                        help="port of the console and the HTTP API [EMBEREYE_HTTP_PORT]")  # fmt: skip
    parser.add_argument("--metrics-port", type=port_number, default=env("METRICS_PORT", "0"), metavar="PORT",
                        help="port of only /metrics and /healthz, for a Prometheus without a token; "
                        "default: none [EMBEREYE_METRICS_PORT]")  # fmt: skip
    parser.add_argument("--admin-token-file", type=Path, default=env("ADMIN_TOKEN_FILE") or None, metavar="FILE",
                        help="file with the admin's token, created if it is missing and read again when it changes; "
                        "default: admin-token in the data folder [EMBEREYE_ADMIN_TOKEN_FILE]")  # fmt: skip
    parser.add_argument("--tls", type=Path, default=Path(env("TLS")) if env("TLS") else None, metavar="DIR",
                        help="folder with tls.crt and tls.key, the certificate for people and programs: gRPC port and "
                        "console then require TLS [EMBEREYE_TLS]")  # fmt: skip
    add_identity(parser, 50053)
    parser.add_argument("--namespace", action="append", default=[env("HUB_NAMESPACES")], metavar="NAME,…",
                        help="accept reports only from shards of these namespaces, needs --identity; repeatable; "
                        "default: all [EMBEREYE_HUB_NAMESPACES]")  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path(env("DATA")) if env("DATA") else None,
                        help="folder of clips and, without --database, of everything else; required "
                        "[EMBEREYE_DATA]")  # fmt: skip
    add_database(parser)
    parser.add_argument("--advertise", default=env("ADVERTISE"), metavar="HOST",
                        help="address where other hubs on the same --database reach this one: one hub owns the "
                        "database, the others forward to it and take over if it fails "
                        "[EMBEREYE_ADVERTISE]")  # fmt: skip
    parser.add_argument("--retention", type=duration, default=env("RETENTION", "30d"),
                        help="retention of history, for example 12h or 30d [EMBEREYE_RETENTION]")  # fmt: skip
    parser.add_argument("--clips", type=size, default=env("CLIPS", "5G"),
                        help="space for clips, for example 500M or 20G; the oldest are deleted "
                        "[EMBEREYE_CLIPS]")  # fmt: skip
    parser.add_argument("--allowed-host", action="append", default=env("ALLOWED_HOSTS").split(), metavar="NAME",
                        help="a host name that browsers can use for the hub, or *.DOMAIN; repeatable; addresses and "
                        "localhost always work [EMBEREYE_ALLOWED_HOSTS, separated by spaces]")  # fmt: skip
    add_base_path(parser, env("BASE_PATH"), " [EMBEREYE_BASE_PATH]")
    parser.add_argument("--webhooks", type=Path, default=Path(env("WEBHOOKS")) if env("WEBHOOKS") else None,
                        metavar="FILE", help="JSON file that declares webhooks (docs/how-to/feeds.md); default: none "
                        "[EMBEREYE_WEBHOOKS]")  # fmt: skip
    _add_mqtt(parser)
    _add_provider(parser)
    for addon in addon_modules("hub"):
        addon.add_arguments(parser)


def _add_mqtt(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "MQTT", "publish the states of zones and devices to a broker (docs/how-to/mqtt.md)"
    )
    group.add_argument("--mqtt-broker", default=env("MQTT_BROKER"), metavar="URL",
                       help="mqtt://HOST:1883 or mqtts://HOST:8883; default: none [EMBEREYE_MQTT_BROKER]")  # fmt: skip
    add_folders(group.add_argument, "mqtt", "the broker", "username and password")
    group.add_argument("--mqtt-prefix", default=env("MQTT_PREFIX", "embereye"), metavar="PREFIX",
                       help="prefix of all topics; each hub needs another one (%(default)s) "
                       "[EMBEREYE_MQTT_PREFIX]")  # fmt: skip
    group.add_argument("--mqtt-discovery", default=env("MQTT_DISCOVERY", "homeassistant"), metavar="PREFIX",
                       help="prefix of Home Assistant's discovery; empty: no discovery (%(default)s) "
                       "[EMBEREYE_MQTT_DISCOVERY]")  # fmt: skip


def broker_options(arguments: Namespace) -> MqttOptions | None:
    """The broker that the options name, if any; UserError if its address is wrong."""
    if not arguments.mqtt_broker:
        return None
    try:
        return read_broker(
            arguments.mqtt_broker, prefix=arguments.mqtt_prefix, discovery=arguments.mqtt_discovery,
            credentials=arguments.mqtt_credentials, certificates=arguments.mqtt_tls,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(f"--mqtt-{error}") from error


def _add_provider(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("identity provider", "let people sign in to the console with OpenID Connect")
    group.add_argument("--oidc-issuer", default=env("OIDC_ISSUER"), metavar="URL",
                       help="issuer of the provider's tokens; default: none [EMBEREYE_OIDC_ISSUER]")  # fmt: skip
    group.add_argument("--oidc-client-id", default=env("OIDC_CLIENT_ID"), metavar="ID",
                       help="id of this hub at the provider; its redirect URI is https://HUB/login/oidc/callback, with "
                       "--base-path after HUB "
                       "[EMBEREYE_OIDC_CLIENT_ID]")  # fmt: skip
    group.add_argument("--oidc-client-secret-file", type=Path, default=env("OIDC_CLIENT_SECRET_FILE") or None,
                       metavar="FILE", help="file with the client's secret, read again each time; default: a public "
                       "client [EMBEREYE_OIDC_CLIENT_SECRET_FILE]")  # fmt: skip
    group.add_argument("--oidc-role", action="append", metavar="ROLE=VALUE", default=env("OIDC_ROLES").split(),
                       help="role (viewer, operator or admin) of people with VALUE in the claim; repeatable; the "
                       "highest "
                       "one counts, people without one are refused [EMBEREYE_OIDC_ROLES, separated by "
                       "spaces]")  # fmt: skip
    group.add_argument("--oidc-claim", default=env("OIDC_CLAIM", "groups"), metavar="CLAIM",
                       help="the claim with these values; a dot selects a field: realm_access.roles "
                       "[EMBEREYE_OIDC_CLAIM]")  # fmt: skip
    group.add_argument("--oidc-scopes", default=env("OIDC_SCOPES", "openid profile email"), metavar="SCOPES",
                       help="scopes to request from the provider [EMBEREYE_OIDC_SCOPES]")  # fmt: skip


def _role_value(text: str) -> tuple[Role, str]:
    role, separator, value = text.partition("=")
    if not separator or not value:
        raise UserError(f'--oidc-role "{text}" is not of the form ROLE=VALUE, such as operator=fire-wardens')
    try:
        return role_named(role), value
    except ValueError as error:
        raise UserError(f"--oidc-role {error}") from error


def provider_options(arguments: Namespace) -> ProviderOptions | None:
    """The identity provider that the options name, if any; UserError if an option is wrong or missing."""
    if not arguments.oidc_issuer:
        return None
    if not arguments.oidc_client_id:
        raise UserError("--oidc-client-id is missing. Give the id of this hub at the provider.")
    if not arguments.oidc_role:
        raise UserError("--oidc-role is missing. Without one, nobody who signs in has a role here.")
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


def addons(arguments: Namespace) -> list[Addon]:
    """The hub's add-ons, with their options; UserError if one is wrong."""
    return [addon.read(arguments) for addon in addon_modules("hub")]


def add_base_path(parser: ArgumentParser, default: str = "", note: str = "") -> None:
    """Declare --base-path."""
    parser.add_argument("--base-path", type=base_path, default=default, metavar="PATH",
                        help="path of the console and the HTTP API behind a proxy, for example /fire; the proxy may "
                        f"remove it from requests or not; default: the root{note}")  # fmt: skip


def base_path(text: str) -> str:
    """A path such as /fire, without a slash at its end."""
    try:
        return read_base_path(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def add_database(parser: ArgumentParser) -> None:
    """Declare --database."""
    parser.add_argument("--database", default=os.environ.get("EMBEREYE_DATABASE", ""), metavar="ADDRESS",
                        help="PostgreSQL for history and state: postgresql://USER:PASSWORD@HOST/NAME, or @FILE with "
                        "the "
                        "address, read again for each connection; default: SQLite in the data folder "
                        "[EMBEREYE_DATABASE]")  # fmt: skip


def _check_advertised(arguments: Namespace) -> None:
    if arguments.advertise and not arguments.database:
        raise UserError("--advertise needs --database: hubs share their history in PostgreSQL")
    if arguments.advertise and not all((arguments.grpc_port, arguments.control_port, arguments.http_port)):
        raise UserError("--advertise needs fixed ports: none of them can be 0")


def run(arguments: Namespace) -> int:
    """Run a hub until SIGTERM or SIGINT, and end the process; return the exit code if a profile is to be written."""
    lifecycle.configure_logging(os.environ.get("EMBEREYE_LOG_LEVEL", "INFO"))
    if arguments.data is None:
        raise UserError("--data is missing. Name the folder for the hub's database.")
    # Pictures and digests of tokens are private, also those that an earlier version wrote.
    os.umask(os.umask(0o077) | 0o007)
    restrict([arguments.data / name for name in ("hub.sqlite", "hub.sqlite-wal", "hub.sqlite-shm", "clips")], 0o007)
    if PASSWORD.search(arguments.database) and any(arguments.database in word for word in sys.argv):
        logger.warning(
            "every user of this machine can read the password in --database in the list of processes. Write the "
            "address to a file, and use --database @FILE."
        )
    _check_advertised(arguments)
    try:
        hosts = AllowedHosts(arguments.allowed_host)
    except ValueError as error:
        raise UserError(f"--allowed-host {error}") from error
    namespaces = split_names(arguments.namespace)
    if namespaces and not arguments.identity:
        raise UserError("--namespace needs --identity: without certificates, the namespace of a shard is unknown")
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
        base_path=arguments.base_path,
        database=arguments.database,
        advertise=arguments.advertise,
        webhooks=read_webhooks(arguments.webhooks) if arguments.webhooks else (),
        mqtt=broker_options(arguments),
        oidc=provider_options(arguments),
        addons=addons(arguments),
    )
    code = lifecycle.run(lambda stop: serve(options, stop))
    if not (arguments.profile or arguments.allocations):  # they are written after this
        lifecycle.leave(code)
    return code
