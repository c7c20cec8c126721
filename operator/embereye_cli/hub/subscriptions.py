"""Manage saved alarm filters (subscriptions), and follow them."""

from argparse import ArgumentParser, Namespace

import grpc
from google.protobuf import json_format

from embereye.hub.tables.selection import parse_selection
from embereye.process.lifecycle import NotFoundError
from embereye.v1 import alarms_pb2 as messages
from embereye.v1.alarms_pb2_grpc import AlarmsStub
from embereye_cli.hub import alarms
from embereye_cli.hub.connection import add_hub_options
from embereye_cli.hub.errors import run_action
from embereye_cli.hub.selection_options import add_selection_options, selection_of
from embereye_cli.parser import accept_after_actions, did_you_mean
from embereye_cli.terminal import local_time, print_answer, print_messages
from embereye_cli.values import cursor

SECONDS = 5.0  # to wait for an answer
EVERYTHING = "everything"
LISTER = "embereye subscriptions list"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="list all subscriptions")
    show = actions.add_parser("show", help="show what a subscription selects")
    store = actions.add_parser("store", help="store a subscription, or replace it")
    delete = actions.add_parser("delete", help="delete a subscription; clients that follow it continue until they end")
    follow = actions.add_parser("follow", help="print the events of a subscription as they happen")
    for action in (show, store, delete, follow):
        action.add_argument("name", metavar="NAME", help="name of the subscription")
    add_selection_options(store)
    follow.add_argument("--cursor", type=cursor, default=None, help="start after this event; 0: at the oldest retained")
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; `follow` runs until interrupted. UserError with the hub's reason if it refuses."""
    if arguments.action == "follow":
        return alarms.run(Namespace(**{**vars(arguments), "action": "watch", "subscription": arguments.name}))
    perform = {"list": _list, "show": _show, "store": _store, "delete": _delete}[arguments.action]
    return run_action("subscriptions", arguments, perform, lister="list")


async def _stored(link: grpc.aio.Channel) -> list[messages.StoredSubscription]:
    answer = await AlarmsStub(link).ListSubscriptions(messages.ListSubscriptionsRequest(), timeout=SECONDS)
    return list(answer.subscriptions)


async def _list(link: grpc.aio.Channel, arguments: Namespace) -> None:
    empty = "No subscriptions. `embereye subscriptions store NAME` makes one."
    columns = ("Name", "Selects", "Stored", "By")
    print_messages(await _stored(link), columns, _row, empty=empty, as_json=arguments.json)


def _row(subscription: messages.StoredSubscription) -> tuple[str, ...]:
    selected = "; ".join(_selected(subscription)) or EVERYTHING
    return subscription.name, selected, local_time(subscription.made_ns), subscription.made_by


async def _show(link: grpc.aio.Channel, arguments: Namespace) -> None:
    stored = {subscription.name: subscription for subscription in await _stored(link)}
    if arguments.name not in stored:
        hint = did_you_mean(arguments.name, stored) or f" `{LISTER}` shows what there is."
        raise NotFoundError(f'there is no subscription "{arguments.name}".{hint}')
    _print(stored[arguments.name], arguments)


async def _store(link: grpc.aio.Channel, arguments: Namespace) -> None:
    selection = selection_of(arguments).message
    request = messages.StoreSubscriptionRequest(name=arguments.name, selection=selection)
    _print(await AlarmsStub(link).StoreSubscription(request, timeout=SECONDS), arguments)


async def _delete(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.RemoveSubscriptionRequest(name=arguments.name)
    await AlarmsStub(link).RemoveSubscription(request, timeout=SECONDS)
    document = {"name": arguments.name, "deleted": True}
    print_answer(document, [f"{arguments.name} is deleted"], as_json=arguments.json)


def _print(subscription: messages.StoredSubscription, arguments: Namespace) -> None:
    head = f"{subscription.name}, stored {local_time(subscription.made_ns)} by {subscription.made_by}"
    selected = [f"  {line}" for line in _selected(subscription) or [EVERYTHING]]
    print_answer(subscription, [head, *selected], as_json=arguments.json)


def _selected(subscription: messages.StoredSubscription) -> list[str]:
    """The selection in words; as JSON if a newer hub stored something that this command does not know."""
    try:
        words = parse_selection(subscription.selection).words
    except ValueError:
        return [json_format.MessageToJson(subscription.selection, indent=None)]
    return [f"{field}: {', '.join(values)}" for field, values in words.items()]
