"""Read the signed statements of watch: what was watched on each day, and its gaps.

`verify` needs only the files of `save` and the public key, which `key` prints. It fails if a byte was changed, or a day
is missing. Get the key from the people who run the hub, not with the files.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import date
from pathlib import Path
from typing import Any

from rich.table import Column

from embereye.addons.statements.page import minutes, pdf, percent, text
from embereye.process.files import system_errors, write_whole
from embereye.process.lifecycle import UserError
from embereye.process.sealed_pdf import ONLY_ATTACHMENT, check_libraries, signed_file
from embereye.process.signing import HEX_KEY, InvalidError, verify_chain
from embereye_cli.hub.connection import add_console_actions, console_connection
from embereye_cli.hub.http import HttpHub
from embereye_cli.parser import accept_after_actions
from embereye_cli.signed_files import add_out_option, check_out, show_signed
from embereye_cli.terminal import print_answer, print_json, print_table

NOT_HERE = "This hub keeps no statements: it is an earlier version"
LISTER = "`embereye statement list` names the days."
PAGE = 400  # days in one request
NUMBERS = ("DEVICES", "GAPS (MIN)", "HUB AWAY (MIN)", "ALARMS", "UNACKNOWLEDGED")
FILES = "????-??-??.json"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options and actions."""
    actions = add_console_actions(parser)
    listing = actions.add_parser("list", help="list the days, the newest first")
    listing.add_argument("--days", type=int, default=31, metavar="N", help="how many (%(default)s)")
    show = actions.add_parser("show", help="show a day's statement; with --json, the file")
    show.add_argument("day", nargs="?", type=_day, default="", metavar="DAY", help="default: the newest")
    add_out_option(show)
    save = actions.add_parser("save", help="fetch the signed files that a folder does not have yet")
    save.add_argument("folder", type=Path, metavar="DIR", help="folder for DAY.json; created if missing")
    save.add_argument("--pdf", action="store_true", help="also write DAY.pdf, with the signed file attached")
    actions.add_parser("key", help="print the public key in hexadecimal")
    check = actions.add_parser("verify", help="verify saved files without a hub")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files, PDFs, or folders of DAY.json")
    check.add_argument("--key", action="append", required=True, metavar="KEY",
                       help="public key in hexadecimal, or a file with it; repeatable")  # fmt: skip
    accept_after_actions(parser, actions)


def run(arguments: Namespace) -> int:
    """Run one action; the exit code is 1 if `verify` finds a problem."""
    if arguments.action == "verify":
        return _verify(arguments)
    hub = HttpHub(console_connection(arguments))
    {"list": _list, "show": _show, "save": _save, "key": _key}[arguments.action](hub, arguments)
    return 0


def _day(word: str) -> str:
    try:
        return date.fromisoformat(word).isoformat()
    except ValueError as error:
        raise ArgumentTypeError(f'"{word}" is not a day such as 2026-11-28') from error


def _read(hub: HttpHub, limit: int, before: str = "") -> dict[str, Any]:
    path = f"/v1/statements?limit={limit}" + (f"&before={before}" if before else "")
    return hub.read(path, "site", "key", "statements", lister=NOT_HERE)


def _list(hub: HttpHub, arguments: Namespace) -> None:
    answer = _read(hub, max(1, min(arguments.days, PAGE)))
    if arguments.json:
        print_json(answer)
        return
    rows = [
        (
            each["day"], percent(each["coveredSeconds"], each["seconds"]), f"{each['devices']}",
            minutes(each["seconds"] - each["coveredSeconds"]), minutes(each["awaySeconds"]), f"{each['alarms']}",
            f"{each['unacknowledged']}", each["sha256"][:16],
        )
        for each in answer["statements"]
    ]  # fmt: skip
    columns = [Column(name, justify="right") for name in NUMBERS]
    print_table(
        ("DAY", "WATCHED", *columns, "SHA-256"), rows, empty="No statement yet: the first one is made after midnight."
    )


def _show(hub: HttpHub, arguments: Namespace) -> None:
    day = arguments.day
    check_out(arguments.out)
    if not day:
        newest = _read(hub, 1)["statements"]
        if not newest:
            raise UserError("there is no statement yet: the first one is made after midnight")
        day = newest[0]["day"]
    data = hub.fetch(f"/v1/statements/{day}", lister=LISTER)
    show_signed(data, arguments, text, pdf, lister=LISTER)


def _save(hub: HttpHub, arguments: Namespace) -> None:
    folder: Path = arguments.folder
    if arguments.pdf:
        check_libraries()
    before, saved = "", 0
    with system_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        while days := _read(hub, PAGE, before)["statements"]:
            for each in days:
                file = folder / f"{each['day']}.json"
                if not file.exists():
                    write_whole(file, hub.fetch(f"/v1/statements/{each['day']}", lister=LISTER))
                    saved += 1
                pages = file.with_suffix(".pdf")
                if arguments.pdf and not pages.exists():
                    write_whole(pages, pdf(file.read_bytes()))
            before = days[-1]["day"]
    print_answer(
        {"folder": str(folder), "saved": saved}, [f"{folder}: {saved} new statements."], as_json=arguments.json
    )


def _key(hub: HttpHub, arguments: Namespace) -> None:
    answer = _read(hub, 1)
    print_answer({name: answer[name] for name in ("site", "key")}, [answer["key"]], as_json=arguments.json)


def _verify(arguments: Namespace) -> int:
    keys = [_public(word) for word in arguments.key]
    contents = _files(arguments.files)
    signed, unreadable = dict[str, bytes](), list[str]()
    for name, content in contents.items():
        try:
            signed[name] = signed_file(content)
        except InvalidError as error:
            unreadable.append(f"{name}: {error}")
    verdict = verify_chain(signed, keys)
    verdict.problems[:0] = unreadable
    lines = list(verdict.problems)
    if verdict.days:
        span = verdict.days[0] if len(verdict.days) == 1 else f"{verdict.days[0]} to {verdict.days[-1]}"
        lines.append(f"{len(verdict.days)} days, {span}: {'valid' if verdict.is_valid else 'not valid'}.")
        if not verdict.begins:
            lines.append(f"The chain begins before {verdict.days[0]}: earlier statements are not among these files.")
    result = {"valid": verdict.is_valid, "days": verdict.days, "problems": verdict.problems}
    print_answer(result, lines, as_json=arguments.json)
    pdfs = [data for name, data in signed.items() if data != contents[name]]
    if pdfs and verdict.is_valid and not arguments.json:
        print("\n\n".join([ONLY_ATTACHMENT, *map(text, pdfs)]))
    return int(not verdict.is_valid)


def _files(paths: list[Path]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        for path in paths:
            for file in sorted(path.glob(FILES)) if path.is_dir() else [path]:
                files[str(file)] = file.read_bytes()
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror or error}") from error
    if not files:
        raise UserError(f"{', '.join(map(str, paths))}: there is no file such as 2026-11-28.json")
    return files


def _public(word: str) -> str:
    if HEX_KEY.fullmatch(word):
        return word
    try:
        content = Path(word).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise UserError(f'--key "{word}": is neither a key of 64 hexadecimal digits nor a file with one') from error
    if not HEX_KEY.fullmatch(content):
        raise UserError(f"--key {word}: the file has no key of 64 hexadecimal digits")
    return content
