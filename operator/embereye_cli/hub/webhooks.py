"""List the hub's webhooks, test them, and resend failed deliveries."""

from argparse import ArgumentParser, Namespace

import grpc
from rich.text import Text

from embereye.process.lifecycle import CheckFailedError
from embereye.process.telemetry.logs import visible
from embereye.v1 import webhooks_pb2 as messages
from embereye.v1.webhooks_pb2_grpc import WebhooksStub
from embereye_cli.hub.connection import add_hub_options
from embereye_cli.hub.errors import run_action
from embereye_cli.parser import accept_after_actions
from embereye_cli.terminal import local_time, print_answer, print_messages
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
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; UserError with the hub's reason if it refuses."""
    perform = {"list": _list, "dead-letters": _list_dead_letters, "resend": _resend, "test": _test}[arguments.action]
    return run_action("webhooks", arguments, perform, lister="list")


async def _list(link: grpc.aio.Channel, arguments: Namespace) -> None:
    webhooks = (await WebhooksStub(link).List(messages.ListWebhooksRequest(), timeout=SECONDS)).webhooks
    empty = "No webhooks. docs/how-to/feeds.md shows how to declare one."
    columns = ("Name", "Format", "Behind", "Dead letters", "State")
    print_messages(webhooks, columns, _webhook_row, empty=empty, as_json=arguments.json)


def _webhook_row(webhook: messages.Webhook) -> tuple[str | Text, ...]:
    state = Text(visible(webhook.failing) or "delivers", style="bold yellow" if webhook.failing else "green")
    return webhook.name, webhook.format, str(webhook.behind), str(webhook.dead_letters), state


async def _list_dead_letters(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.DeadLettersRequest(webhook=arguments.webhook, after=arguments.after, limit=arguments.limit)
    letters = (await WebhooksStub(link).DeadLetters(request, timeout=SECONDS)).dead_letters
    columns = ("Cursor", "Time", "Zone", "Event", "Attempts", "Error")
    print_messages(letters, columns, _letter_row, empty="No dead letters.", as_json=arguments.json)


def _letter_row(letter: messages.DeadLetter) -> tuple[str, ...]:
    event = letter.event
    zone = f"{event.namespace}/{event.zone}"
    return str(event.cursor), local_time(event.time_ns), zone, event.why, str(letter.attempts), letter.why


async def _resend(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.ResendRequest(webhook=arguments.webhook, cursors=arguments.cursors)
    resent = (await WebhooksStub(link).Resend(request, timeout=SECONDS)).resent
    print_answer({"resent": resent}, [f"Sending {resent} again."], as_json=arguments.json)


async def _test(link: grpc.aio.Channel, arguments: Namespace) -> None:
    request = messages.TestWebhookRequest(webhook=arguments.webhook)
    failed = (await WebhooksStub(link).Test(request, timeout=TEST_SECONDS)).failed
    if failed:
        raise CheckFailedError(f"webhook {arguments.webhook}: {failed}")
    print_answer({}, ["Delivered: the endpoint answered 2xx."], as_json=arguments.json)
