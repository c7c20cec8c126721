"""`embereye access`: who may do what at the hub, at the command line."""

import asyncio
import getpass
import os
from argparse import ArgumentParser, Namespace
from datetime import datetime

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from rich.table import Table
from rich.text import Text

from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye.process.tls.client import dial
from embereye.v1 import access_pb2 as messages
from embereye.v1.access_pb2_grpc import AccessStub
from embereye_cli.hub.token import REMEDY, add_hub_options, add_hub_options_behind, hub_tls, token_for
from embereye_cli.terminal import Terminal
from embereye_cli.values import count, entry

SECONDS = 5.0  # for an answer
# By what gRPC says where no hub can be talked to: what to do.
UNREACHABLE = {
    "Stream removed": "it was talked to, and ended",
    "WRONG_VERSION_NUMBER": "it does not speak TLS there: leave --ca out",
    "CERTIFICATE_VERIFY_FAILED": "name who signed its certificate with --ca",
    "Hostname Verification": "its certificate has another name: say one that it has with --server-name",
    "Socket closed": "it may speak TLS: name who signed its certificate with --ca",
}
ROLES = {"viewer": messages.ROLE_VIEWER, "operator": messages.ROLE_OPERATOR, "admin": messages.ROLE_ADMIN}
WORDS = {number: word for word, number in ROLES.items()}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    console = os.environ.get("EMBEREYE_CONSOLE", "http://127.0.0.1:8080")
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a token and print it: it is told this once")
    create.add_argument("name", metavar="NAME", help="unique; what its holder does is recorded under it")
    create.add_argument("--role", choices=ROLES, required=True,
                        help="viewer sees everything, operator acts on alarms too, admin gives access too")  # fmt: skip
    actions.add_parser("list", help="every token, without what would let anybody use it")
    revoke = actions.add_parser("revoke", help="end a token, and the sessions and feeds that were opened with it")
    revoke.add_argument("name", metavar="NAME", help="as `embereye access list` shows it")
    link = actions.add_parser("link", help="print an address that signs one browser in, once, within the hour")
    link.add_argument("--name", default="", help="of the person; default: your login")
    link.add_argument("--role", choices=ROLES, default=None, help="at most your own, which is the default")
    link.add_argument("--console", default=console, metavar="URL",
                      help="of the hub, as the browser reaches it (%(default)s) [EMBEREYE_CONSOLE]")  # fmt: skip
    audit = actions.add_parser("audit", help="who did what, when, and from where; newest first")
    audit.add_argument("--limit", type=count, default=50, help="at most so many, up to 1000 (%(default)s)")
    audit.add_argument("--before", type=entry, default=0, metavar="NUMBER", help="only entries before this one")
    actions.add_parser("whoami", help="whose token this is, and its role")
    add_hub_options_behind(actions.choices.values())


def run(arguments: Namespace) -> int:
    """Run one action; UserError with the hub's reason where it refuses."""
    asyncio.run(_run(arguments))
    return 0


async def _run(arguments: Namespace) -> None:
    token = token_for(arguments.token, arguments.hub.rpartition(":")[0])
    action = {"create": _create, "list": _list, "revoke": _revoke, "link": _link, "audit": _audit, "whoami": _who}
    async with dial(arguments.hub, hub_tls(arguments), token=token) as link:
        try:
            await action[arguments.action](link, arguments)
        except grpc.aio.AioRpcError as error:
            raise UserError(sentence(error, arguments.hub, f"embereye access {arguments.action}")) from error


def sentence(error: grpc.aio.AioRpcError, hub: str, command: str, *, shows: str = "") -> str:
    """Why a call of `command` to `hub` failed, and what to do about it.

    `shows` is the command that lists what there is, for whoever named what is not there.
    """
    reason = error.details() or error.code().name
    if error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        remedy = next((remedy for sign, remedy in UNREACHABLE.items() if sign in reason), "--hub names its gRPC port")
        return f"the hub at {hub} cannot be reached: {reason}; {remedy}"
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        return f"the hub at {hub} does not let us in: {reason.partition(';')[0]}; {REMEDY}"
    if error.code() == grpc.StatusCode.PERMISSION_DENIED:
        role = reason.partition("takes the role ")[2] or "admin"
        makes = f"`embereye access create NAME --role {role}`"
        return f"`{command}` is refused: {reason}; an admin makes such a token, {makes}, to be shown with --token"
    if error.code() == grpc.StatusCode.NOT_FOUND and shows:
        return f"{reason}: `{shows}` shows what there is"
    return reason


async def _create(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.CreateTokenRequest(name=arguments.name, role=ROLES[arguments.role])
    made = await AccessStub(link).CreateToken(request, timeout=SECONDS)
    print(json_format.MessageToJson(made, indent=None) if arguments.json else made.token)


async def _list(link: grpc.aio.Channel, arguments: Namespace) -> None:
    tokens = (await AccessStub(link).ListTokens(messages.ListTokensRequest(), timeout=SECONDS)).tokens
    if arguments.json:
        return _lines(list(tokens))
    table = Table("Name", "Role", "Made", "By", box=None, header_style="dim", pad_edge=False)
    for one in tokens:
        table.add_row(Text(one.name), WORDS.get(one.role, "?"), _time(one.made_ns), Text(one.made_by))
    if not tokens:
        table.add_row("none but the admin's, which the hub was started with", "", "", "")
    Terminal(highlight=False).print(table)
    return None


async def _revoke(link: grpc.aio.Channel, arguments: Namespace) -> None:
    await AccessStub(link).RevokeToken(messages.RevokeTokenRequest(name=arguments.name), timeout=SECONDS)


async def _link(link: grpc.aio.Channel, arguments: Namespace) -> None:
    role = ROLES[arguments.role] if arguments.role else messages.ROLE_UNSPECIFIED
    caller = await AccessStub(link).WhoAmI(messages.WhoAmIRequest(), timeout=SECONDS)
    # Only an admin names somebody else; the link of others is their own.
    name = arguments.name or (login_name() if caller.role == messages.ROLE_ADMIN else "")
    made = await AccessStub(link).CreateLink(messages.CreateLinkRequest(name=name, role=role), timeout=SECONDS)
    print(arguments.console.rstrip("/") + made.path)


def login_name() -> str:
    """Who is logged in here; '' where the system has no name for them, as in a pod."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


async def _audit(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.AuditRequest(before=arguments.before, limit=arguments.limit)
    entries = (await AccessStub(link).Audit(request, timeout=SECONDS)).entries
    if arguments.json:
        return _lines(list(entries))
    table = Table("No.", "When", "Who", "Role", "From", "Action", "Subject", "Detail", box=None, header_style="dim",
                  pad_edge=False)  # fmt: skip
    for one in entries:
        table.add_row(
            str(one.number), _time(one.time_ns), Text(one.who), WORDS.get(one.role, "?"), one.address, one.action,
            Text(visible(one.subject)), Text(visible(one.detail)),
        )  # fmt: skip
    Terminal(highlight=False).print(table)
    return None


async def _who(link: grpc.aio.Channel, arguments: Namespace) -> None:
    caller = await AccessStub(link).WhoAmI(messages.WhoAmIRequest(), timeout=SECONDS)
    if arguments.json:
        return _lines([caller])
    print(f"{caller.name}, {WORDS.get(caller.role, '?')}")
    return None


def _lines(found: "list[messages.Token] | list[messages.AuditRecord] | list[messages.Identity]") -> None:
    one: Message
    for one in found:
        print(json_format.MessageToJson(one, indent=None, ensure_ascii=False), flush=True)


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")
