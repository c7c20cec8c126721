"""List the hub's webhooks, test them, and resend failed deliveries."""

import asyncio
from argparse import ArgumentParser, Namespace

import grpc
from rich.text import Text

from embereye.process.lifecycle import CheckFailedError
from embereye.v1 import webhooks_pb2 as messages
from embereye.v1.webhooks_pb2_grpc import WebhooksStub
from embereye_cli.hub.connection import add_hub_options, add_hub_options_to_actions, hub_connection
from embereye_cli.hub.errors import connected
from embereye_cli.terminal import local_time, print_json, print_table
from embereye_cli.values import count, cursor

SECONDS = 5.0  # to wait for an answer
TEST_SECONDS = 75.0  # to wait for an answer that depends on the webhook's receiver


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="list all webhooks and their state")
    dead = actions.add_parser("dead-letters", help="list the events that a webhook could not deliver, and why")
    dead.add_argument("webhook", metavar="WEBHOOK", help="name of the webhook, as in the list")
    dead.add_argument("--after", type=cursor, default=0, metavar="CURSOR", help="only events after this cursor")
    dead.add_argument("--limit", type=count, default=100, help="largest number of events, up to 1000 (%(default)s)")
    resend = actions.add_parser("resend", help="send dead letters again; failed ones remain dead letters")
    resend.add_argument("webhook", metavar="WEBHOOK", help="name of the webhook, as in the list")
    resend.add_argument("cursors", metavar="CURSOR", type=cursor, nargs="*", help="events to send; default: all")
    test = actions.add_parser("test", help="send a test event and print the result")
    test.add_argument("webhook", metavar="WEBHOOK", help="name of the webhook, as in the list")
    add_hub_options_to_actions(actions.choices.values())


def run(arguments: Namespace) -> int:
    """Run one action; UserError with the hub's reason if it refuses."""
    asyncio.run(_run(arguments))
    return 0


async def _run(arguments: Namespace) -> None:
    perform = {"list": _list, "dead-letters": _list_dead_letters, "resend": _resend, "test": _test}[arguments.action]
    command = f"embereye webhooks {arguments.action}"
    async with connected(hub_connection(arguments), command, lister="embereye webhooks list") as link:
        await perform(link, arguments)


async def _list(link: grpc.aio.Channel, arguments: Namespace) -> None:
    webhooks = (await WebhooksStub(link).List(messages.ListWebhooksRequest(), timeout=SECONDS)).webhooks
    if arguments.json:
        for webhook in webhooks:
            print_json(webhook)
        return
    rows = [
        (
            webhook.name, webhook.format, str(webhook.behind), str(webhook.dead_letters),
            Text(_printable(webhook.failing) or "delivers", style="bold yellow" if webhook.failing else "green"),
        )
        for webhook in webhooks
    ]  # fmt: skip
    empty = "No webhooks. docs/how-to/feeds.md shows how to declare one."
    print_table(("Name", "Format", "Behind", "Dead letters", "State"), rows, empty=empty)


async def _list_dead_letters(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.DeadLettersRequest(webhook=arguments.webhook, after=arguments.after, limit=arguments.limit)
    letters = (await WebhooksStub(link).DeadLetters(request, timeout=SECONDS)).dead_letters
    if arguments.json:
        for letter in letters:
            print_json(letter)
        return
    rows = [
        (
            str(letter.event.cursor), local_time(letter.event.time_ns), f"{letter.event.namespace}/{letter.event.zone}",
            letter.event.why, str(letter.attempts), letter.why,
        )
        for letter in letters
    ]  # fmt: skip
    print_table(("Cursor", "Time", "Zone", "Event", "Attempts", "Error"), rows, empty="No dead letters.")


async def _resend(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.ResendRequest(webhook=arguments.webhook, cursors=arguments.cursors)
    resent = (await WebhooksStub(link).Resend(request, timeout=SECONDS)).resent
    if arguments.json:
        print_json({"resent": resent})
    else:
        print(f"Sending {resent} again.")


async def _test(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.TestWebhookRequest(webhook=arguments.webhook)
    failed = (await WebhooksStub(link).Test(request, timeout=TEST_SECONDS)).failed
    if failed:
        raise CheckFailedError(f"webhook {arguments.webhook}: {failed}")
    if arguments.json:
        print_json({})
    else:
        print("Delivered: the endpoint answered 2xx.")


def _printable(text: str) -> str:
    """`text` without control characters, which could steer a terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)
