"""`embereye webhooks`: how the hub's webhooks fare, and what they could not deliver."""

import asyncio
from argparse import ArgumentParser, Namespace

import grpc
from google.protobuf import json_format
from rich.table import Table
from rich.text import Text

from embereye.process.lifecycle import UserError
from embereye.process.tls.client import dial
from embereye.v1 import webhooks_pb2 as messages
from embereye.v1.webhooks_pb2_grpc import WebhooksStub
from embereye_cli.hub.access import sentence
from embereye_cli.hub.token import add_hub_options, add_hub_options_behind, hub_tls, token_for
from embereye_cli.terminal import Terminal
from embereye_cli.values import count, cursor

SECONDS = 5.0  # for an answer
TEST_SECONDS = 75.0  # for one that waits for the webhook's receiver


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_hub_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="every webhook and how it fares")
    dead = actions.add_parser("dead-letters", help="what a webhook could not deliver, and why")
    dead.add_argument("webhook", metavar="WEBHOOK", help="its name in the list")
    dead.add_argument("--after", type=cursor, default=0, metavar="CURSOR", help="only events past this cursor")
    dead.add_argument("--limit", type=count, default=100, help="at most so many, up to 1000 (%(default)s)")
    resend = actions.add_parser("resend", help="send dead letters again; those that fail again stay")
    resend.add_argument("webhook", metavar="WEBHOOK", help="its name in the list")
    resend.add_argument("cursors", metavar="CURSOR", type=cursor, nargs="*", help="of those to be sent; default: all")
    test = actions.add_parser("test", help="send a test that nobody need mind, and say what came of it")
    test.add_argument("webhook", metavar="WEBHOOK", help="its name in the list")
    add_hub_options_behind(actions.choices.values())


def run(arguments: Namespace) -> int:
    """Run one action; UserError with the hub's reason where it refuses."""
    return asyncio.run(_run(arguments))


async def _run(arguments: Namespace) -> int:
    token = token_for(arguments.token, arguments.hub.rpartition(":")[0])
    action = {"list": _list, "dead-letters": _dead_letters, "resend": _resend, "test": _test}[arguments.action]
    async with dial(arguments.hub, hub_tls(arguments), token=token) as link:
        try:
            return await action(link, arguments)
        except grpc.aio.AioRpcError as error:
            command = f"embereye webhooks {arguments.action}"
            raise UserError(sentence(error, arguments.hub, command, shows="embereye webhooks list")) from error


async def _list(link: grpc.aio.Channel, arguments: Namespace) -> int:
    webhooks = (await WebhooksStub(link).List(messages.ListWebhooksRequest(), timeout=SECONDS)).webhooks
    if arguments.json:
        return _lines(list(webhooks))
    table = Table("Name", "Format", "Behind", "Dead letters", "State", box=None, header_style="dim", pad_edge=False)
    for one in webhooks:
        state = Text(_plain(one.failing) or "delivers", style="bold yellow" if one.failing else "green")
        table.add_row(Text(one.name), one.format, str(one.behind), str(one.dead_letters), state)
    if not webhooks:
        table.add_row("none is declared: docs/how-to/feeds.md says how", "", "", "", "")
    Terminal(highlight=False).print(table)
    return 0


async def _dead_letters(link: grpc.aio.Channel, arguments: Namespace) -> int:
    request = messages.DeadLettersRequest(webhook=arguments.webhook, after=arguments.after, limit=arguments.limit)
    letters = (await WebhooksStub(link).DeadLetters(request, timeout=SECONDS)).dead_letters
    if arguments.json:
        return _lines(list(letters))
    table = Table("Cursor", "Zone", "Event", "Attempts", "Why", box=None, header_style="dim", pad_edge=False)
    for one in letters:
        zone = Text(_plain(f"{one.event.namespace}/{one.event.zone}"))
        table.add_row(
            str(one.event.cursor), zone, Text(_plain(one.event.why)), str(one.attempts), Text(_plain(one.why))
        )
    if not letters:
        table.add_row("none", "", "", "", "")
    Terminal(highlight=False).print(table)
    return 0


async def _resend(link: grpc.aio.Channel, arguments: Namespace) -> int:
    request = messages.ResendRequest(webhook=arguments.webhook, cursors=arguments.cursors)
    resent = (await WebhooksStub(link).Resend(request, timeout=SECONDS)).resent
    print(f'{{"resent": {resent}}}' if arguments.json else f"{resent} are being sent again")
    return 0


async def _test(link: grpc.aio.Channel, arguments: Namespace) -> int:
    request = messages.TestWebhookRequest(webhook=arguments.webhook)
    failed = (await WebhooksStub(link).Test(request, timeout=TEST_SECONDS)).failed
    if failed:
        raise UserError(f"webhook {arguments.webhook}: {failed}")
    print("{}" if arguments.json else "it was taken")
    return 0


def _lines(found: "list[messages.Webhook] | list[messages.DeadLetter]") -> int:
    for one in found:
        print(json_format.MessageToJson(one, indent=None, ensure_ascii=False), flush=True)
    return 0


def _plain(text: str) -> str:
    """`text` without control characters, which could steer a terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)
