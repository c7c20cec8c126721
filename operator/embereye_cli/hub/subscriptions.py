"""`embereye subscriptions`: what of the feed is asked for under a name, and following that."""

import asyncio
from argparse import ArgumentParser, Namespace
from datetime import datetime

import grpc
from google.protobuf import json_format
from rich.table import Table
from rich.text import Text

from embereye.hub.feeds.selection import parse_selection
from embereye.process.lifecycle import UserError
from embereye.process.telemetry.logs import visible
from embereye.process.tls.client import dial
from embereye.units import SECOND
from embereye.v1 import alarms_pb2 as messages
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye_cli.hub import alarms
from embereye_cli.hub.access import sentence
from embereye_cli.hub.selection_options import add_selection_options, selection_of
from embereye_cli.hub.token import add_hub_options, add_hub_options_behind, hub_tls, token_for
from embereye_cli.terminal import Terminal
from embereye_cli.values import cursor

SECONDS = 5.0  # for an answer
EVERYTHING = "everything"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="every subscription that is stored")
    show = actions.add_parser("show", help="what one of them asks for")
    store = actions.add_parser("store", help="store what the options ask for, instead of what was there")
    delete = actions.add_parser("delete", help="delete one; who follows it goes on until they subscribe again")
    follow = actions.add_parser("follow", help="what happens of it, as it happens")
    for action in (show, store, delete, follow):
        action.add_argument("name", metavar="NAME", help="its name in the list")
    add_selection_options(store)
    follow.add_argument("--cursor", type=cursor, default=None, help="begin after this event; 0: from the oldest kept")
    add_hub_options_behind(actions.choices.values())


def run(arguments: Namespace) -> int:
    """Run one action; `follow` runs until interrupted. UserError with the hub's reason where it refuses."""
    if arguments.action == "follow":
        return alarms.run(Namespace(**{**vars(arguments), "action": "watch", "subscription": arguments.name}))
    return asyncio.run(_run(arguments))


async def _run(arguments: Namespace) -> int:
    token = token_for(arguments.token, arguments.hub.rpartition(":")[0])
    action = {"list": _list, "show": _show, "store": _store, "delete": _delete}[arguments.action]
    async with dial(arguments.hub, hub_tls(arguments), token=token) as link:
        try:
            await action(link, arguments)
        except grpc.aio.AioRpcError as error:
            command = f"embereye subscriptions {arguments.action}"
            raise UserError(sentence(error, arguments.hub, command, shows="embereye subscriptions list")) from error
    return 0


async def _all(link: grpc.aio.Channel) -> list[messages.StoredSubscription]:
    answer = await AlarmsStub(link).ListSubscriptions(messages.ListSubscriptionsRequest(), timeout=SECONDS)
    return list(answer.subscriptions)


async def _list(link: grpc.aio.Channel, arguments: Namespace) -> None:
    stored = await _all(link)
    if arguments.json:
        for one in stored:
            _line(one)
        return
    table = Table("Name", "Wants", "Stored", "By", box=None, header_style="dim", pad_edge=False)
    for one in stored:
        wants = "; ".join(_wants(one)) or EVERYTHING
        table.add_row(*(Text(visible(text)) for text in (one.name, wants, _time(one.made_ns), one.made_by)))
    if not stored:
        table.add_row("none is stored: `embereye subscriptions store NAME` does", "", "", "")
    Terminal(highlight=False).print(table)


async def _show(link: grpc.aio.Channel, arguments: Namespace) -> None:
    found = [one for one in await _all(link) if one.name == arguments.name]
    if not found:
        raise UserError(f'no subscription "{arguments.name}" is stored: `embereye subscriptions list` shows them')
    _tell(found[0], arguments)


async def _store(link: grpc.aio.Channel, arguments: Namespace) -> None:
    wanted = selection_of(arguments).message
    request = messages.StoreSubscriptionRequest(name=arguments.name, selection=wanted)
    _tell(await AlarmsStub(link).StoreSubscription(request, timeout=SECONDS), arguments)


async def _delete(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.RemoveSubscriptionRequest(name=arguments.name)
    await AlarmsStub(link).RemoveSubscription(request, timeout=SECONDS)
    print("{}" if arguments.json else f"{visible(arguments.name)} is deleted")


def _tell(one: messages.StoredSubscription, arguments: Namespace) -> None:
    if arguments.json:
        _line(one)
        return
    print(visible(f"{one.name}, stored {_time(one.made_ns)} by {one.made_by}"))
    for line in _wants(one) or [EVERYTHING]:
        print(f"  {visible(line)}")


def _wants(one: messages.StoredSubscription) -> list[str]:
    """What it asks for in words; as numbers what a newer hub knows and this command does not."""
    try:
        words = parse_selection(one.selection).words
    except ValueError:
        return [json_format.MessageToJson(one.selection, indent=None)]
    return [f"{field}: {', '.join(values)}" for field, values in words.items()]


def _line(one: messages.StoredSubscription) -> None:
    print(json_format.MessageToJson(one, indent=None, ensure_ascii=False), flush=True)


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / SECOND).astimezone().strftime("%Y-%m-%d %H:%M:%S")
