"""Show and test the hub's routes to people, resend what they did not accept, and check notify.yaml."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from urllib.parse import quote

from rich.text import Text

from embereye.process.lifecycle import CheckFailedError, NotFoundError
from embereye_cli.hub.connection import add_console_actions, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.parser import accept_after_actions
from embereye_cli.terminal import local_time, print_answer, print_json, print_table

NOT_DECLARED = "This hub notifies nobody: start it with --notify (addons/notify/README.md)"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    actions = add_console_actions(parser)
    actions.add_parser("list", help="list all routes and their state")
    test = actions.add_parser("test", help="send a test message by a route and print the result")
    test.add_argument("route", metavar="NAME", help="name of the route, as in the list")
    actions.add_parser("dead", help="list news that a route did not accept in time, and why")
    actions.add_parser("resend", help="send that news again")
    accept_after_actions(parser, actions)
    check = actions.add_parser("check", help="check a notify.yaml without a hub")
    check.add_argument("file", type=Path, metavar="FILE", help="the file for --notify")


def run(arguments: Namespace) -> int:
    """Run one action; UserError with the hub's reason if it refuses."""
    if arguments.action == "check":
        return _check(arguments)
    hub = HttpHub(console_connection(arguments))
    {"list": _list, "test": _test, "dead": _dead, "resend": _resend}[arguments.action](hub, arguments)
    return 0


def _check(arguments: Namespace) -> int:
    from embereye.addons.notify.hub import read

    read(Namespace(notify=arguments.file))
    print(f"{arguments.file}: correct.")
    return 0


def _list(hub: HttpHub, arguments: Namespace) -> None:
    state = hub.read("/v1/notify", "routes", "sentence", lister=NOT_DECLARED)
    routes = state["routes"]
    if arguments.json:
        print_json(state)
        return
    rows = [
        (
            route["name"], route["proof"], str(route["sent"]), str(route["waiting"]), str(route["deadLetters"]),
            Text(route["failing"] or "delivers", style="bold yellow" if route["failing"] else "green"),
        )
        for route in routes
    ]  # fmt: skip
    print_table(("Name", "Proof", "Sent", "Waiting", "Dead letters", "State"), rows, empty="No routes.")
    print(f"{state['sentence']}.")
    for duty in state["duties"]:
        problem = f". {duty['problem']}" if duty["problem"] else ""
        print(f"On duty, {duty['name']}: {', '.join(duty['routes']) or 'nobody'}{problem}")
    if state["unrouted"]:
        print(f"No escalation is for the alarm in {', '.join(state['unrouted'])}.")


def _test(hub: HttpHub, arguments: Namespace) -> None:
    path = f"/v1/notify/routes/{quote(arguments.route, safe='')}/test"
    try:
        failed = hub.read(path, "failed", body={})["failed"]
    except NotFoundError as error:
        hub.read("/v1/notify", "routes", lister=NOT_DECLARED)  # does the hub notify at all?
        raise NotFoundError(str(error)) from error
    if failed:
        raise CheckFailedError(f"route {arguments.route}: {failed}")
    print_answer({}, ["Accepted: the service took the message. Look whether it arrived."], as_json=arguments.json)


def _dead(hub: HttpHub, arguments: Namespace) -> None:
    dead = hub.read("/v1/notify/dead", "dead", lister=NOT_DECLARED)["dead"]
    if arguments.json:
        print_json({"dead": dead})
        return
    rows = [
        (each["route"], local_time(int(each["diedNs"])), each["zone"], each["news"], str(each["attempts"]), each["why"])
        for each in dead
    ]
    print_table(("Route", "Given up", "Zone", "News", "Attempts", "Error"), rows, empty="No dead letters.")


def _resend(hub: HttpHub, arguments: Namespace) -> None:
    resent = hub.read("/v1/notify/dead/resend", "resent", body={}, lister=NOT_DECLARED)["resent"]
    print_answer({"resent": resent}, [f"Sending {resent} again."], as_json=arguments.json)
