"""Test each device of a zone: start a walk test, trigger the devices on site, and end it with a signed report.

Alarms are raised as usual during a test, and mention it: warn the people who get them before you start.
"""

from argparse import ArgumentParser, Namespace
from typing import Any
from urllib.parse import quote

from embereye.addons.walktest.page import pdf, text
from embereye_cli.hub.connection import add_console_actions, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.options import Option
from embereye_cli.parser import accept_after_actions
from embereye_cli.signed_files import add_out_option, add_verify_arguments, check_out, show_signed, verify_report
from embereye_cli.terminal import local_time, print_answer, print_json, print_table

NOT_HERE = "This hub has no walk tests: it is an earlier version"
LISTER = "`embereye walktest status` lists tests and reports."


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    actions = add_console_actions(parser)
    start = actions.add_parser("start", help="put a zone under test, and begin to note which devices are triggered")
    start.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
    start.add_argument("--note", default="", help="for the report, such as the occasion")
    status = actions.add_parser("status", help="show running tests, due dates and reports")
    status.add_argument("zone", nargs="?", default="", metavar="ZONE", help="only this zone")
    end = actions.add_parser("end", help="end a zone's test, and show the signed report")
    end.add_argument("zone", metavar="ZONE", help="name, or namespace/name")
    show = actions.add_parser("show", help="show a report again; with --json, the signed file")
    show.add_argument("report", metavar="ID", help="its id in the status")
    add_out_option(end)
    add_out_option(show)
    add_verify_arguments(actions.add_parser("verify", help="verify the file of a report without a hub"))
    for action in (start, end):
        Option("--who", "your name, if several people share a token").add_to(action)
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; the exit code is 1 if `verify` fails, or a test ends with untested devices."""
    if arguments.action == "verify":
        return verify_report(arguments, "walktest", "a walk test", _title, text)
    hub = HttpHub(console_connection(arguments))
    return {"start": _start, "status": _status, "end": _end, "show": _show}[arguments.action](hub, arguments)


def _start(hub: HttpHub, arguments: Namespace) -> int:
    path, body = hub.zone_path(arguments.zone, "walktest"), {"note": arguments.note, "who": arguments.who}
    answer = hub.read(path, body=body, lister=NOT_HERE)
    line = f"{arguments.zone}: under test. Trigger {len(answer['untested'])} devices: {_names(answer['untested'])}."
    print_answer(answer, [line], as_json=arguments.json)
    return 0


def _end(hub: HttpHub, arguments: Namespace) -> int:
    check_out(arguments.out)
    data = hub.fetch(hub.zone_path(arguments.zone, "walktest/end"), body={"who": arguments.who}, lister=NOT_HERE)
    show_signed(data, arguments, text, pdf, lister=LISTER)
    return int(b'"complete":false' in data)


def _show(hub: HttpHub, arguments: Namespace) -> int:
    check_out(arguments.out)
    data = hub.fetch(f"/v1/walktests/{quote(arguments.report, safe='')}", lister=LISTER)
    show_signed(data, arguments, text, pdf, lister=LISTER)
    return 0


def _status(hub: HttpHub, arguments: Namespace) -> int:
    answer = hub.read("/v1/walktests", "running", "due", "reports", lister=NOT_HERE)
    for name in ("running", "due", "reports"):
        answer[name] = [each for each in answer[name] if arguments.zone in {"", each["zone"], _title(each)}]
    if arguments.json:
        print_json(answer)
        return 0
    for test in answer["running"]:
        total = len(test["triggered"]) + len(test["untested"])
        print(f"{_title(test)}: {len(test['triggered'])} of {total} devices triggered, since "
              f"{local_time(int(test['startedNs']))} by {test['who']}.")  # fmt: skip
        if test["untested"]:
            print(f"  left: {_names(test['untested'])}")
    if not answer["running"]:
        print("No walk test runs.")
    due = [(_title(each), local_time(int(each["dueNs"])), _names(each["overdue"])) for each in answer["due"]]
    print_table(("ZONE", "DUE", "OVERDUE DEVICES"), due, empty="No zone has a due date: see --walktest-every.")
    reports = [
        (each["walktest"], _title(each), each["ended"], f"{each['tested']} of {each['devices']}", each["startedBy"])
        for each in answer["reports"]
    ]
    print_table(("REPORT", "ZONE", "ENDED", "TESTED", "WHO"), reports, empty="No report yet.")
    return 0


def _title(each: dict[str, Any]) -> str:
    return f"{each['namespace']}/{each['zone']}"


def _names(devices: list[dict[str, str]]) -> str:
    return ", ".join(device["device"] for device in devices)
