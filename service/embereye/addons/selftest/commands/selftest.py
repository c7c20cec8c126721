"""Optical self-tests: list the lamps and heaters that devices must see, with the newest results, or run a test now."""

import time
from argparse import ArgumentParser, Namespace
from typing import Any
from urllib.parse import quote

from embereye_cli.hub.connection import add_console_actions, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.parser import accept_after_actions
from embereye_cli.terminal import local_time, print_answer, print_json, print_table

LISTER = "This hub has no self-tests: it runs without --selftest, or it is an earlier version"
PAUSE = 0.5  # seconds


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    actions = add_console_actions(parser)
    actions.add_parser("list", help="show the tests and their newest results")
    run_action = actions.add_parser("run", help="run a test now, and wait for its result")
    run_action.add_argument("test", metavar="TEST", help="its name, as declared")
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; the exit code is 1 if a test was not seen, or could not be run."""
    hub = HttpHub(console_connection(arguments))
    if arguments.action == "list":
        return _list(hub, arguments)
    name = arguments.test
    hub.read(f"/v1/selftests/{quote(name, safe='')}/run", body={}, lister="`embereye selftest list` lists the tests.")
    while (test := next(each for each in _read(hub) if each["test"] == name))["outcome"] == "running":
        time.sleep(PAUSE)
    print_answer(test, [f"{name}: {test['device']}: {test['detail']}"], as_json=arguments.json)
    return int(test["outcome"] != "seen")


def _read(hub: HttpHub) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = hub.read("/v1/selftests", "selftests", lister=LISTER)["selftests"]
    return tests


def _list(hub: HttpHub, arguments: Namespace) -> int:
    tests = _read(hub)
    if arguments.json:
        print_json({"selftests": tests})
    else:
        rows = [
            (each["test"], each["device"], each["detail"] or "never run",
             local_time(int(each["startedNs"])) if int(each["startedNs"]) else "")
            for each in tests
        ]  # fmt: skip
        print_table(("TEST", "DEVICE", "RESULT", "AT"), rows, empty="No self-test is declared.")
    return int(any(each["failed"] for each in tests))
