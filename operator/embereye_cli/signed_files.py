"""Signed reports of the hub as commands show, write and verify them: see `embereye.process.signing`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embereye.process.files import system_errors, write_whole
from embereye.process.lifecycle import UserError
from embereye.process.sealed_pdf import ONLY_ATTACHMENT, check_libraries, is_pdf_name, signed_file
from embereye.process.signing import HEX_KEY, InvalidError, open_sealed

Draw = Callable[[bytes], bytes]  # a signed file as a PDF
Write = Callable[[bytes], str]  # a signed file as text


def add_out_option(parser: ArgumentParser) -> None:
    """Declare --out."""
    text = "also write the signed file; FILE.pdf: as a PDF with it attached"
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help=text)


def add_verify_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments of `verify_report`."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the signed report, or the PDF")
    parser.add_argument("--key", required=True, metavar="KEY", help="public key, as `embereye statement key` prints it")


def check_out(out: Path | None) -> None:
    """Raise UserError if the file of --out cannot be made, before anything is done."""
    if out and is_pdf_name(out):
        check_libraries()


def show_signed(data: bytes, arguments: Namespace, text: Write, pdf: Draw, *, lister: str) -> None:
    """Write the signed file `data` to --out, and print it. `lister` says where it is if it cannot be written."""
    if out := arguments.out:
        try:
            write_whole(out, pdf(data) if is_pdf_name(out) else data)
        except OSError as error:
            raise UserError(f"--out {out}: {error.strerror or error}. {lister}") from error
    print(data.decode().rstrip("\n") if arguments.json else text(data))


def verify_report(
    arguments: Namespace, name: str, title: str, subject: Callable[[dict[str, Any]], str], text: Write
) -> int:
    """Verify a report without a hub; return the exit code.

    A report of this kind, called `title`, has its id in the field `name`. `subject` says what it is about.
    """
    if not HEX_KEY.fullmatch(arguments.key):
        raise UserError(f'--key "{arguments.key}": is not a key of 64 hexadecimal digits')
    try:
        with system_errors(str(arguments.file)):
            content = arguments.file.read_bytes()
        data = signed_file(content)
        made = open_sealed(data, [arguments.key])
        if name not in made:
            raise InvalidError(f"is no report of {title}")
    except InvalidError as error:
        print(f"{arguments.file}: {error}")
        return 1
    print(f"{arguments.file}: valid. {subject(made)}, {made['ended']}")
    if data != content:
        print(f"{ONLY_ATTACHMENT}\n\n{text(data)}")
    return 0
