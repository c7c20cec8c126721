"""Read the signed reports of drills. `kubectl embereye drill` makes a drill."""

from argparse import ArgumentParser, Namespace
from urllib.parse import quote

from embereye.addons.drills.page import pdf, text
from embereye_cli.hub.connection import add_console_actions, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.parser import accept_after_actions
from embereye_cli.signed_files import add_out_option, add_verify_arguments, check_out, show_signed, verify_report
from embereye_cli.terminal import print_json, print_table

NOT_HERE = "This hub has no drills: it is an earlier version"
LISTER = "`embereye drill list` lists the reports."


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    actions = add_console_actions(parser)
    actions.add_parser("list", help="list the drill that runs, and the reports")
    show = actions.add_parser("show", help="show a report; with --json, the signed file")
    show.add_argument("report", metavar="ID", help="its id in the list")
    add_out_option(show)
    add_verify_arguments(actions.add_parser("verify", help="verify the file of a report without a hub"))
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; the exit code is 1 if `verify` fails."""
    if arguments.action == "verify":
        return verify_report(arguments, "drill", "a drill", lambda made: str(made["fleet"]), text)
    hub = HttpHub(console_connection(arguments))
    return {"list": _list, "show": _show}[arguments.action](hub, arguments)


def _list(hub: HttpHub, arguments: Namespace) -> int:
    answer = hub.read("/v1/drills", "running", "reports", lister=NOT_HERE)
    if arguments.json:
        print_json(answer)
        return 0
    for each in answer["running"]:
        print(f"{each['fleet']}: a drill by {each['who']} runs: {', '.join(each['faults'])}.")
    reports = [
        (each["drill"], each["fleet"], each["ended"], "yes" if each["complete"] else "NO", each["startedBy"])
        for each in answer["reports"]
    ]
    print_table(("REPORT", "FLEET", "ENDED", "COMPLETE", "WHO"), reports, empty="No report yet.")
    return 0


def _show(hub: HttpHub, arguments: Namespace) -> int:
    check_out(arguments.out)
    data = hub.fetch(f"/v1/drills/{quote(arguments.report, safe='')}", lister=LISTER)
    show_signed(data, arguments, text, pdf, lister=LISTER)
    return 0
