"""Run the hub. `embereye hub backup`, `restore` and `migrate` copy its stored history."""

import logging
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from embereye.hub.access.keeper import check_scope
from embereye.hub.addon import Addon
from embereye.hub.http.access.origin import AllowedHosts
from embereye.hub.http.base_path import read_base_path
from embereye.hub.mqtt.options import MqttOptions, read_broker
from embereye.hub.oidc.options import ProviderOptions, RoleRules
from embereye.hub.roles import Role, Scope, read_scope, role_named
from embereye.hub.server import HubOptions, serve
from embereye.hub.webhooks.options import read_webhooks
from embereye.process import lifecycle
from embereye.process.addons import addon_modules
from embereye.process.files import restrict
from embereye.process.lifecycle import UserError, value_errors
from embereye.units import SECOND, bracketed
from embereye_cli.options import Option, OptionGroup, add_options, folders_of_peer, identity_options, options_of
from embereye_cli.values import duration, port_number, size, split_names

logger = logging.getLogger(__name__)
PASSWORD = re.compile(r":[^/@]+@|password=")  # in a connection string


def base_path(text: str) -> str:
    """A path such as /fire, without a slash at its end."""
    try:
        return read_base_path(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


# fmt: off
DATABASE = Option("--database", "PostgreSQL for history and state: postgresql://USER:PASSWORD@HOST/NAME, or @FILE with "
                  "the address, read again for each connection; default: SQLite in the data folder", metavar="ADDRESS")
BASE_PATH = Option("--base-path", "path of the console and the HTTP API behind a proxy, for example /fire; the proxy "
                   "may remove it from requests or not; default: the root", type=base_path, metavar="PATH")
OPTIONS = (
    Option("--host", "address to listen on", default="[::]", type=bracketed),
    Option("--outer-host", "address where people reach gRPC and console; default: --host", type=bracketed,
           metavar="HOST"),
    Option("--grpc-port", "gRPC port", default="50052", type=port_number),
    Option("--http-port", "port of the console and the HTTP API", default="8080", type=port_number),
    Option("--metrics-port", "port of only /metrics and /healthz, for a Prometheus without a token; default: none",
           default="0", type=port_number, metavar="PORT"),
    Option("--admin-token-file", "file with the admin's token, created if it is missing and read again when it "
           "changes; default: admin-token in the data folder", type=Path, metavar="FILE"),
    Option("--tls", "folder with tls.crt and tls.key, the certificate for people and programs: gRPC port and console "
           "then require TLS", type=Path, metavar="DIR"),
    *identity_options(50053),
    Option("--namespace", "accept reports only from shards of these namespaces, needs --identity; repeatable; "
           "default: all", metavar="NAME,…", variable="HUB_NAMESPACES", is_list=True),
    Option("--data", "folder of clips and, without --database, of everything else; required", type=Path),
    DATABASE,
    Option("--advertise", "address where other hubs on the same --database reach this one: one hub owns the database, "
           "the others forward to it and take over if it fails", metavar="HOST"),
    Option("--retention", "retention of history, for example 12h or 30d", default="30d", type=duration),
    Option("--clips", "space for clips, for example 500M or 20G; the oldest are deleted", default="5G", type=size),
    Option("--margins", "space for what `embereye explain quiet` shows, at most 2 MB a day and device; the oldest is "
           "deleted", default="2G", type=size),
    Option("--allowed-host", "a host name that browsers can use for the hub, or *.DOMAIN; repeatable; addresses and "
           "localhost always work", metavar="NAME", variable="ALLOWED_HOSTS", is_list=True),
    BASE_PATH,
    Option("--webhooks", "JSON file that declares webhooks (docs/how-to/feeds.md); default: none", type=Path,
           metavar="FILE"),
)
MQTT = OptionGroup(
    "MQTT", "publish the states of zones and devices to a broker (docs/how-to/mqtt.md)",
    Option("--mqtt-broker", "mqtt://HOST:1883 or mqtts://HOST:8883; default: none", metavar="URL"),
    *folders_of_peer("mqtt", "the broker", "username and password"),
    Option("--mqtt-prefix", "prefix of all topics; each hub needs another one (%(default)s)", default="embereye",
           metavar="PREFIX"),
    Option("--mqtt-discovery", "prefix of Home Assistant's discovery; empty: no discovery (%(default)s)",
           default="homeassistant", metavar="PREFIX"),
)
PROVIDER = OptionGroup(
    "identity provider", "let people sign in to the console with OpenID Connect",
    Option("--oidc-issuer", "issuer of the provider's tokens; default: none", metavar="URL"),
    Option("--oidc-client-id", "id of this hub at the provider; its redirect URI is https://HUB/login/oidc/callback, "
           "with --base-path after HUB", metavar="ID"),
    Option("--oidc-client-secret-file", "file with the client's secret, read again each time; default: a public "
           "client", type=Path, metavar="FILE"),
    Option("--oidc-role", "role (viewer, operator or admin) of people with VALUE in the claim; repeatable; the highest "
           "one counts, people without one are refused", metavar="ROLE=VALUE", variable="OIDC_ROLES", is_list=True),
    Option("--oidc-zone", "limit people with VALUE in the claim to the zone NAMESPACE/ZONE, or to the fleet "
           "NAMESPACE/KIND/NAME and its zones, with * for any text; repeatable; not for admins",
           metavar="ZONE=VALUE", variable="OIDC_ZONES", is_list=True),
    Option("--oidc-claim", "the claim with these values; a dot selects a field: realm_access.roles", default="groups",
           metavar="CLAIM"),
    Option("--oidc-scopes", "scopes to request from the provider", default="openid profile email", metavar="SCOPES"),
)
# fmt: on


def addon_groups() -> list[OptionGroup]:
    """The options that add-ons declare."""
    return [addon.OPTIONS for addon in addon_modules("hub") if hasattr(addon, "OPTIONS")]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options; defaults come from EMBEREYE_* variables."""
    add_options(parser, OPTIONS)
    for group in (MQTT, PROVIDER, *addon_groups()):
        group.add_to(parser)


def broker_options(arguments: Namespace) -> MqttOptions | None:
    """The broker that the options name, if any; UserError if its address is wrong."""
    if not arguments.mqtt_broker:
        return None
    with value_errors("--mqtt-"):
        return read_broker(
            arguments.mqtt_broker, prefix=arguments.mqtt_prefix, discovery=arguments.mqtt_discovery,
            credentials=arguments.mqtt_credentials, certificates=arguments.mqtt_tls,
        )  # fmt: skip


def _role_value(text: str) -> tuple[Role, str]:
    role, separator, value = text.partition("=")
    if not separator or not value:
        raise UserError(f'--oidc-role "{text}" is not of the form ROLE=VALUE, such as operator=fire-wardens')
    with value_errors("--oidc-role "):
        return role_named(role), value


def _zones(texts: Sequence[str], roles: Mapping[str, Role]) -> dict[str, Scope]:
    """Read the zones of each value; UserError if one is wrong, or its value gives no role that can be limited."""
    patterns: dict[str, list[str]] = {}
    for text in texts:
        zone, separator, value = text.partition("=")
        if not separator or not value:
            raise UserError(f'--oidc-zone "{text}" is not of the form ZONE=VALUE, such as hall/*=night-guards')
        if value not in roles:
            raise UserError(f'--oidc-zone "{text}": no --oidc-role gives "{value}" a role')
        patterns.setdefault(value, []).append(zone)
    with value_errors("--oidc-zone: "):
        scopes = {value: read_scope(zones) for value, zones in patterns.items()}
        for value, scope in scopes.items():
            check_scope(roles[value], scope)
    return scopes


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
    with value_errors("--oidc-issuer "):
        return ProviderOptions(
            arguments.oidc_issuer, arguments.oidc_client_id,
            RoleRules(arguments.oidc_claim, values, _zones(arguments.oidc_zone, values)),
            arguments.oidc_client_secret_file, arguments.oidc_scopes,
        )  # fmt: skip


def addons(arguments: Namespace) -> list[Addon]:
    """The hub's add-ons, with their options; UserError if one is wrong."""
    return [addon.read(arguments) for addon in addon_modules("hub")]


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
    with value_errors("--allowed-host "):
        hosts = AllowedHosts(arguments.allowed_host)
    namespaces = split_names(arguments.namespace)
    if namespaces and not arguments.identity:
        raise UserError("--namespace needs --identity: without certificates, the namespace of a shard is unknown")
    options = options_of(
        HubOptions,
        arguments,
        admin_token_file=Path(arguments.admin_token_file or arguments.data / "admin-token"),
        retention_ns=int(arguments.retention * SECOND),
        clips_bytes=arguments.clips,
        margins_bytes=arguments.margins,
        namespaces=namespaces,
        hosts=hosts,
        webhooks=read_webhooks(arguments.webhooks) if arguments.webhooks else (),
        mqtt=broker_options(arguments),
        oidc=provider_options(arguments),
        addons=addons(arguments),
    )
    code = lifecycle.run(lambda stop: serve(options, stop))
    if not (arguments.profile or arguments.allocations):  # they are written after this
        lifecycle.leave(code)
    return code
