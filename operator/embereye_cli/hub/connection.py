"""Connections from commands to the hub: its address, its certificate and the token for it.

`embereye up` leaves a note in its data folder (`site.json`). Without options, a command finds address, certificate
authority and token there. --hub, --ca and --token override each of them. The note's authority and token are used only
if the address is that hub's, so no other server receives that token. Commands declare the options with
`add_hub_options` for gRPC or `add_console_options` for HTTP, and get the connection from the parsed arguments.
"""

import ssl
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _SubParsersAction
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc

from embereye.process.files import system_errors
from embereye.process.lifecycle import NotFoundError, UserError
from embereye.process.tls.client import ClientTls, dial
from embereye.process.tls.trust import trusting
from embereye.units import split_address
from embereye_cli.hub.token import add_token_option, is_this_machine, token_for
from embereye_cli.options import Option
from embereye_operator.up import site

DEFAULT_HUB = "127.0.0.1:50052"
DEFAULT_CONSOLE = "http://127.0.0.1:8080"
CONSOLE_PORT = 8080
SITE_NAME = "localhost"  # every certificate that `embereye up` issues for its hub has this name


@dataclass(frozen=True, kw_only=True)
class HubConnection:
    """The hub that a command talks to over gRPC."""

    hub: str  # HOST:PORT, or unix:PATH
    tls: ClientTls | None
    console: str  # URL, as people open it
    given_token: str
    own_token: Path | None  # token file of the `embereye up` that runs this hub

    @property
    def token(self) -> str:
        """The token to present, read again at each use. UserError if it cannot be read."""
        return token_for(self.given_token, self.hub.rpartition(":")[0], self.own_token)

    def dial(self) -> grpc.aio.Channel:
        """A channel that presents the token with each call."""
        return dial(self.hub, self.tls, token=self.token)


def add_data_option(parser: ArgumentParser) -> None:
    """Declare --data of a command that talks to the hub of an `embereye up`."""
    parser.add_argument("--data", type=Path, default=None, metavar="DIR",
                        help="data folder of the `embereye up` to talk to; default: .embereye in this folder, then "
                        "/var/lib/embereye")  # fmt: skip


def add_hub_tls_options(parser: ArgumentParser) -> None:
    """Declare the options for TLS with the hub."""
    trust = "connect over TLS and trust the authorities in FILE (PEM), or those of this machine"
    _add_tls_options(parser, trust, "--hub")


def _add_tls_options(parser: ArgumentParser, trust: str, address: str) -> None:
    """Declare --ca, with the help `trust`, and --server-name for the server at the option `address`."""
    Option("--ca", trust, metavar="FILE|system", variable="HUB_CA").add_to(parser)
    Option("--server-name", f"a name in the hub's certificate; default: the host of {address}", metavar="NAME",
           variable="HUB_NAME").add_to(parser)  # fmt: skip


def add_hub_options(parser: ArgumentParser, *, json: bool = True) -> None:
    """Declare --hub, --json for commands with such output, and the options for data folder, token and TLS."""
    Option("--hub", f"gRPC address of the hub; default: the one of --data, else {DEFAULT_HUB}", type=hub_address,
           metavar="HOST:PORT").add_to(parser)  # fmt: skip
    add_data_option(parser)
    if json:
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_token_option(parser)
    add_hub_tls_options(parser)


def hub_tls(arguments: Namespace) -> ClientTls | None:
    """The TLS settings that the options ask for; None: no TLS. UserError if the file of --ca cannot be used."""
    if not arguments.ca:
        return None
    tls = ClientTls(None if arguments.ca == "system" else Path(arguments.ca), server_name=arguments.server_name)
    try:
        tls.check()
    except UserError as error:
        remedy = "Name a PEM file with the certificates of the authority that signed the hub's."
        raise UserError(f"--ca {arguments.ca} cannot be used: {error}. {remedy}") from error
    return tls


def find_site(data: Path | None) -> tuple[Path, site.Site | None]:
    """The data folder of the `embereye up` to talk to, and the note in it; None if no default folder has one.

    NotFoundError if `data` is given and has no note.
    """
    if data is not None:
        note = site.read_site(data)
        if note is None:
            raise NotFoundError(f"--data {data}: no `embereye up` of yours has run there. Name its data folder.")
        return data, note
    for folder in (site.DATA, site.SERVICE_DATA):
        if note := site.read_site(folder):
            return folder, note
    return site.DATA, None


def hub_connection(arguments: Namespace) -> HubConnection:
    """The hub that the options name, or that of the `embereye up` here. UserError, NotFoundError."""
    data, note = find_site(getattr(arguments, "data", None))
    hub = arguments.hub or (note.hub if note else DEFAULT_HUB)
    tls = hub_tls(arguments)
    if note and not is_same_hub(hub, note.hub):
        note = None
    console = note.console if note else _console_beside(hub, tls)
    if note and note.tls and tls is None:
        tls = ClientTls(site.authority_file(data), server_name=SITE_NAME)
        tls.check()
    own_token = _own_token(data) if note else None
    return HubConnection(hub=hub, tls=tls, console=console, given_token=arguments.token, own_token=own_token)


def _own_token(data: Path) -> Path | None:
    file = site.token_file(data)
    return file if file.exists() else None


def is_same_hub(hub: str, other: str) -> bool:
    """True if both addresses reach one port, also by different names of this machine."""
    (host, _, port), (other_host, _, other_port) = hub.rpartition(":"), other.rpartition(":")
    return hub == other or (port == other_port and is_this_machine(host) and is_this_machine(other_host))


def _console_beside(hub: str, tls: ClientTls | None) -> str:
    """The most likely address of the console of the hub at `hub`."""
    if hub.startswith("unix:") or hub == DEFAULT_HUB:
        return DEFAULT_CONSOLE
    return f"http{'s' if tls else ''}://{hub.rpartition(':')[0]}:{CONSOLE_PORT}"


def hub_address(text: str) -> str:
    """HOST:PORT, or unix:PATH of a socket."""
    if text and not text.startswith("unix:"):
        try:
            split_address(text)
        except ValueError as error:
            _, _, remedy = str(error).partition("; ")
            sentence = f'"{text}" is not HOST:PORT, such as {DEFAULT_HUB}'
            raise ArgumentTypeError(f"{sentence}; {remedy}" if remedy else sentence) from error
    return text


# Over HTTP


@dataclass(frozen=True, kw_only=True)
class ConsoleConnection:
    """The hub that a command talks to over HTTP."""

    url: str
    token: str
    trust: ssl.SSLContext
    server_name: str = ""  # in the certificate; empty: the host of the URL


def add_console_options(parser: ArgumentParser) -> None:
    """Declare --console, --data, --token, and the options for HTTPS."""
    console = f"address of the hub's console; default: the one of --data, else {DEFAULT_CONSOLE}"
    Option("--console", console, metavar="URL").add_to(parser)
    add_data_option(parser)
    add_token_option(parser)
    trust = "over HTTPS, trust the authorities in FILE (PEM); default: those of this machine"
    _add_tls_options(parser, trust, "--console")


def add_console_actions(parser: ArgumentParser) -> "_SubParsersAction[ArgumentParser]":
    """Declare the options of `add_console_options` and --json; return the actions, one of which is required."""
    add_console_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def console_connection(arguments: Namespace) -> ConsoleConnection:
    """The console that the options name, or that of the `embereye up` here. UserError, NotFoundError."""
    data, note = find_site(getattr(arguments, "data", None))
    url = arguments.console or (note.local_console if note else DEFAULT_CONSOLE)
    if note and url.rstrip("/") not in {note.console.rstrip("/"), note.local_console}:
        note = None
    token = token_for(arguments.token, _host_of(url), _own_token(data) if note else None)
    ca, server_name = getattr(arguments, "ca", ""), getattr(arguments, "server_name", "")
    if note and note.tls and not ca:
        ca, server_name = str(site.authority_file(data)), SITE_NAME
    if not ca or ca == "system" or not url.startswith("https:"):
        return ConsoleConnection(url=url, token=token, trust=trusting(), server_name=server_name)
    with system_errors(f"--ca {ca} cannot be used"):
        return ConsoleConnection(url=url, token=token, trust=trusting(Path(ca)), server_name=server_name)


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.port != 0 and parts.path.isascii()
        host = parts.hostname or ""
        if known and host.encode("idna"):
            return host
    except ValueError:  # an impossible port or host
        pass
    raise UserError(f'--console "{url}" is not a URL such as {DEFAULT_CONSOLE}')
