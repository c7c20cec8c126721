"""Create, list and revoke tokens of the hub; print sign-in links; show the audit trail."""

import getpass
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace

import grpc

from embereye.v1 import access_pb2 as messages
from embereye.v1.access_pb2_grpc import AccessStub
from embereye_cli.hub.connection import add_hub_options, hub_connection
from embereye_cli.hub.errors import run_action
from embereye_cli.options import Option
from embereye_cli.parser import accept_after_actions
from embereye_cli.terminal import local_time, print_answer, print_messages
from embereye_cli.values import count, entry

SECONDS = 5.0  # to wait for an answer
FLEET = re.compile(r"[^/]+/(sensors|cameras|\*)/[^/]+")
ROLES = {"viewer": messages.ROLE_VIEWER, "operator": messages.ROLE_OPERATOR, "admin": messages.ROLE_ADMIN}
WORDS = {number: word for word, number in ROLES.items()}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="create a token and print it, this one time")
    create.add_argument("name", metavar="NAME", help="unique name; actions with the token are recorded under it")
    create.add_argument("--role", choices=ROLES, required=True,
                        help="viewer: sees everything; operator: also acts on alarms; admin: also "
                        "manages access")  # fmt: skip
    create.add_argument("--zone", action="append", default=[], metavar="NAMESPACE/ZONE",
                        help="limit it to this zone, with * for any characters, such as hall/*; can be repeated; "
                        "default: all zones")  # fmt: skip
    create.add_argument("--fleet", action="append", default=[], metavar="NAMESPACE/KIND/NAME", type=fleet_pattern,
                        help="limit it to the devices of this fleet and the alarms of their zones, such as "
                        "hall/cameras/yard; can be repeated, and combined with --zone")  # fmt: skip
    actions.add_parser("list", help="list all tokens, without their secret part")
    revoke = actions.add_parser("revoke", help="end a token, and the sessions and feeds that were opened with it")
    revoke.add_argument("name", metavar="NAME", help="name of the token, as in the list")
    link = actions.add_parser("link", help="print an address that signs in one browser, once, within the hour")
    link.add_argument("--name", default="", help="name of the person; default: your login")
    link.add_argument("--role", choices=ROLES, default=None, help="role of the session; default and limit: your own")
    Option("--console", "address of the console as the browser reaches it; default: the one of the `embereye up` that "
           "is asked", metavar="URL").add_to(link)  # fmt: skip
    audit = actions.add_parser("audit", help="list who did what, when and from where; newest first")
    audit.add_argument("--limit", type=count, default=50, help="largest number of entries, up to 1000 (%(default)s)")
    audit.add_argument("--before", type=entry, default=0, metavar="NUMBER", help="only entries before this one")
    actions.add_parser("whoami", help="print the name and the role of your token")
    accept_after_actions(parser, actions)


def fleet_pattern(text: str) -> str:
    """A fleet, or a pattern of fleets. Another text could be a zone to the hub."""
    if not FLEET.fullmatch(text):
        raise ArgumentTypeError(f'"{text}" is not a fleet such as hall/cameras/yard or hall/sensors/*')
    return text


def run(arguments: Namespace) -> int:
    """Run one action; UserError with the hub's reason if it refuses."""
    perform = {
        "create": _create, "list": _list, "revoke": _revoke, "link": _print_link, "audit": _audit,
        "whoami": _print_identity,
    }[arguments.action]  # fmt: skip
    return run_action("access", arguments, perform, lister="list" if arguments.action == "revoke" else "")


async def _create(link: grpc.aio.Channel, arguments: Namespace) -> None:
    limits = [*arguments.zone, *arguments.fleet]
    request = messages.CreateTokenRequest(name=arguments.name, role=ROLES[arguments.role], zones=limits)
    created = await AccessStub(link).CreateToken(request, timeout=SECONDS)
    print_answer(created, [created.token], as_json=arguments.json)


async def _list(link: grpc.aio.Channel, arguments: Namespace) -> None:
    tokens = (await AccessStub(link).ListTokens(messages.ListTokensRequest(), timeout=SECONDS)).tokens
    empty = "No tokens, except the admin's from the hub's start."
    columns = ("Name", "Role", "Zones and fleets", "Created", "By")
    print_messages(tokens, columns, _token_row, empty=empty, as_json=arguments.json)


def _token_row(token: messages.Token) -> tuple[str, ...]:
    zones = ", ".join(token.zones) or "all"
    return token.name, WORDS.get(token.role, "?"), zones, local_time(token.made_ns), token.made_by


async def _revoke(link: grpc.aio.Channel, arguments: Namespace) -> None:
    await AccessStub(link).RevokeToken(messages.RevokeTokenRequest(name=arguments.name), timeout=SECONDS)
    print_answer({"name": arguments.name, "revoked": True}, [], as_json=arguments.json)


async def _print_link(link: grpc.aio.Channel, arguments: Namespace) -> None:
    role = ROLES[arguments.role] if arguments.role else messages.ROLE_UNSPECIFIED
    caller = await AccessStub(link).WhoAmI(messages.WhoAmIRequest(), timeout=SECONDS)
    # Only an admin can name another person; everybody else's link is their own.
    name = arguments.name or (login_name() if caller.role == messages.ROLE_ADMIN else "")
    created = await AccessStub(link).CreateLink(messages.CreateLinkRequest(name=name, role=role), timeout=SECONDS)
    address = (arguments.console or hub_connection(arguments).console).rstrip("/") + created.path
    print_answer({"url": address}, [address], as_json=arguments.json)


def login_name() -> str:
    """The login of the user who runs the command; empty if the system has no name for them, as in a pod."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


async def _audit(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.AuditRequest(before=arguments.before, limit=arguments.limit)
    entries = (await AccessStub(link).Audit(request, timeout=SECONDS)).entries
    columns = ("No.", "Time", "Who", "Role", "From", "Action", "Subject", "Detail")
    print_messages(entries, columns, _record_row, empty="No entries.", as_json=arguments.json)


def _record_row(record: messages.AuditRecord) -> tuple[str, ...]:
    return (
        str(record.number), local_time(record.time_ns), record.who, WORDS.get(record.role, "?"), record.address,
        record.action, record.subject, record.detail,
    )  # fmt: skip


async def _print_identity(link: grpc.aio.Channel, arguments: Namespace) -> None:
    caller = await AccessStub(link).WhoAmI(messages.WhoAmIRequest(), timeout=SECONDS)
    text = ", ".join((caller.name, WORDS.get(caller.role, "?"), *caller.zones))
    print_answer(caller, [text], as_json=arguments.json)
