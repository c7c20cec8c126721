"""Read the signed reports of drills. `kubectl embereye drill` makes a drill."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from urllib.parse import quote

from embereye.addons.drills.page import pdf, text
from embereye.process.files import write_whole
from embereye.process.lifecycle import UserError
from embereye.process.sealed_pdf import ONLY_ATTACHMENT, check_libraries, is_pdf_name, signed_file
from embereye.process.signing import HEX_KEY, InvalidError, open_sealed
from embereye_cli.hub.connection import add_console_options, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.parser import accept_after_actions
from embereye_cli.terminal import print_json, print_table

NOT_HERE = "This hub has no drills: it is an earlier version"
LISTER = "`embereye drill list` lists the reports."


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    add_console_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="list the drill that runs, and the reports")
    show = actions.add_parser("show", help="show a report; with --json, the signed file")
    show.add_argument("report", metavar="ID", help="its id in the list")
    out = "also write the signed report to a file; FILE.pdf: as a PDF with it attached"
    show.add_argument("--out", type=Path, default=None, metavar="FILE", help=out)
    check = actions.add_parser("verify", help="verify the file of a report without a hub")
    check.add_argument("file", type=Path, metavar="FILE", help="the signed report, or the PDF")
    check.add_argument("--key", required=True, metavar="KEY", help="public key, as `embereye statement key` prints it")
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; the exit code is 1 if `verify` fails."""
    if arguments.action == "verify":
        return _verify(arguments)
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
    out = arguments.out
    if out and is_pdf_name(out):
        check_libraries()
    data = hub.fetch(f"/v1/drills/{quote(arguments.report, safe='')}", lister=LISTER)
    try:
        if out:
            write_whole(out, pdf(data) if is_pdf_name(out) else data)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror or error}") from error
    print(data.decode().rstrip("\n") if arguments.json else text(data))
    return 0


def _verify(arguments: Namespace) -> int:
    if not HEX_KEY.fullmatch(arguments.key):
        raise UserError(f'--key "{arguments.key}": is not a key of 64 hexadecimal digits')
    try:
        content = arguments.file.read_bytes()
        data = signed_file(content)
        made = open_sealed(data, [arguments.key])
    except OSError as error:
        raise UserError(f"{arguments.file}: {error.strerror or error}") from error
    except InvalidError as error:
        print(f"{arguments.file}: {error}")
        return 1
    if "drill" not in made:
        print(f"{arguments.file}: is no report of a drill")
        return 1
    print(f"{arguments.file}: valid. {made['fleet']}, {made['ended']}")
    if data != content:
        print(f"{ONLY_ATTACHMENT}\n\n{text(data)}")
    return 0
