"""Signed files as PDF: pages for people, and the signed file as the attachment `signed.json`.

Only the attachment is signed. The pages show its content, but a viewer cannot prove that, so commands that verify a PDF
print the attachment's content. The libraries belong to the extra `pdf` and are loaded at the first use.

Fonts are embedded: DejaVu Sans, and Droid Sans Fallback for Chinese, Japanese and Korean (Debian: fonts-dejavu-core,
fonts-droid-fallback). Without DejaVu, Helvetica shows western European names. A character that no font has is written
as its code, such as U+4ED3, and the first page says so.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from embereye.process.extras import needed_by
from embereye.process.signing import InvalidError, digest
from embereye.process.telemetry.logs import visible

SUFFIX = ".pdf"
ATTACHMENT = "signed.json"
MAX_BYTES = 64 * 1024 * 1024  # of an attachment; a day of 10,000 devices has about 2 MB
FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/Library/Fonts")
REGULAR, BOLD, FALLBACK = "DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DroidSansFallbackFull.ttf"
ONLY_ATTACHMENT = "Only the attachment of a PDF is signed, not its pages. It says:"
NOTE = "Some characters are written as codes such as U+4ED3, because no font has them: {} is missing."
PART_ROWS = 200  # of a table: splitting takes the square of the rows, so long tables are several
FRAME = 6  # points that ReportLab leaves empty at each side
GREY, RULE = "#5f5f5f", "#cccccc"


@dataclass(frozen=True)
class Section:
    """A table below a heading."""

    heading: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """The content of the pages."""

    title: str
    facts: Sequence[tuple[str, str]]  # name and value
    sections: Sequence[Section]
    command: str  # verifies the PDF, such as "embereye walktest verify"
    is_signed_by_hand: bool = False  # adds a line for a signature by hand


def is_pdf_name(path: Path) -> bool:
    """True if a file of this name is to be a PDF."""
    return path.suffix.lower() == SUFFIX


def check_libraries() -> None:
    """Load the libraries that write; UserError says how to install them."""
    with needed_by("a PDF", "ReportLab and pypdf", "pdf"):
        import pypdf  # noqa: F401
        import reportlab.platypus  # noqa: F401


def signed_file(data: bytes) -> bytes:
    """Return the signed file in a PDF, and any other file as it is. InvalidError; UserError without pypdf."""
    if not data.startswith(b"%PDF-"):
        return data
    with needed_by("a PDF", "pypdf", "pdf"):
        from pypdf import PdfReader
    try:
        attached: list[bytes] = list(PdfReader(io.BytesIO(data)).attachments.get(ATTACHMENT, []))
    except Exception as error:  # a hostile or damaged file may raise anything
        raise InvalidError(f"is a PDF that cannot be read ({error})") from error
    if len(attached) != 1 or len(attached[0]) > MAX_BYTES:
        raise InvalidError(f"is a PDF without one attachment {ATTACHMENT}: it was printed or changed")
    return attached[0]


def render(report: Report, data: bytes) -> bytes:
    """The PDF of the signed file `data`, the same bytes for the same file and fonts. UserError without a library."""
    check_libraries()
    from pypdf import PdfWriter

    pages = _Pages(_fonts())
    writer = PdfWriter(clone_from=io.BytesIO(pages.draw(report, data)))
    writer.add_attachment(ATTACHMENT, data)
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


@dataclass(frozen=True)
class _Fonts:
    regular: str
    bold: str
    has: frozenset[int]  # characters of `regular`; `bold` has the same
    fallback: str = ""  # a font for other characters
    fallback_has: frozenset[int] = field(default=frozenset())
    missing: str = ""  # Debian's packages that are not installed


def _find(name: str) -> Path | None:
    folders = (Path(folder).expanduser() for folder in FONT_FOLDERS)
    return next((file for folder in folders for file in folder.rglob(name)), None)


@cache
def _fonts() -> _Fonts:
    """Register the fonts that this machine has."""
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    def register(name: str, file: Path) -> frozenset[int]:
        font = TTFont(name, str(file))
        pdfmetrics.registerFont(font)
        return frozenset(font.face.charToGlyph)

    regular, bold, fallback = _find(REGULAR), _find(BOLD), _find(FALLBACK)
    missing = ["fonts-dejavu-core"] * (not (regular and bold)) + ["fonts-droid-fallback"] * (fallback is None)
    names, has = ("Helvetica", "Helvetica-Bold"), frozenset(ord(bytes([each]).decode("cp1252", "ignore") or " ")
                                                            for each in range(32, 256))  # fmt: skip
    if regular and bold:
        names, has = ("Regular", "Bold"), register("Regular", regular) & register("Bold", bold)
    others = register("Fallback", fallback) if fallback else frozenset[int]()
    return _Fonts(*names, has, "Fallback" if fallback else "", others, " ".join(missing))


class _Pages:
    """Draws one report."""

    def __init__(self, fonts: _Fonts) -> None:
        from reportlab.lib.styles import ParagraphStyle

        self._fonts = fonts
        self._has_codes = False
        self._body = ParagraphStyle("body", fontName=fonts.regular, fontSize=8.5, leading=11.5)
        self._small = ParagraphStyle("small", parent=self._body, fontSize=7.5, leading=10)
        self._strong = ParagraphStyle("strong", parent=self._body, fontName=fonts.bold)
        self._heading = ParagraphStyle(
            "heading", parent=self._strong, fontSize=11, leading=14, spaceBefore=14, spaceAfter=4, keepWithNext=1
        )
        self._title = ParagraphStyle("title", parent=self._strong, fontSize=16, leading=21, spaceAfter=8)

    def draw(self, report: Report, data: bytes) -> bytes:
        """The pages as a PDF without attachment."""
        from reportlab.lib.pagesizes import A4
        from reportlab.lib.units import mm
        from reportlab.platypus import SimpleDocTemplate

        written = io.BytesIO()
        document = SimpleDocTemplate(
            written, pagesize=A4, title=visible(report.title), author="EmberEye", lang="en", invariant=1,
            leftMargin=18 * mm, rightMargin=18 * mm, topMargin=16 * mm, bottomMargin=20 * mm,
        )  # fmt: skip
        footer = f"SHA-256 {digest(data)}"

        def draw_footer(canvas: Any, _: Any) -> None:
            canvas.setFont(self._fonts.regular, 7)
            canvas.setFillColor(GREY)
            canvas.drawString(18 * mm, 11 * mm, footer)
            canvas.drawRightString(A4[0] - 18 * mm, 11 * mm, f"Page {canvas.getPageNumber()}")

        document.build(list(self._story(report, data, document.width - 2 * FRAME)), draw_footer, draw_footer)
        return written.getvalue()

    def _story(self, report: Report, data: bytes, width: float) -> Iterator[Any]:
        from reportlab.platypus import Paragraph

        title = self._paragraph(report.title, self._title)
        rest = [*self._facts(report.facts, width)]
        for section in report.sections:
            rest += [self._paragraph(section.heading, self._heading), *self._tables(section, width)]
        rest += self._signature(report, data, width)
        yield title
        if self._has_codes:
            yield Paragraph(NOTE.format(escape(self._fonts.missing or "a font for them")), self._small)
        yield from rest

    def _facts(self, facts: Iterable[tuple[str, str]], width: float) -> Iterator[Any]:
        rows = [(self._paragraph(name, self._strong), self._paragraph(value, self._body)) for name, value in facts]
        if rows:
            yield self._grid(rows, [width * 0.18, width * 0.82])

    def _tables(self, section: Section, width: float) -> Iterator[Any]:
        # Wide columns get more space: by the longest content, within limits so that none vanishes.
        columns = zip(section.heads, *section.rows, strict=True)
        weights = [min(max(map(len, column)), 30) + 4 for column in columns]
        widths = [width * weight / sum(weights) for weight in weights]
        for first in range(0, len(section.rows), PART_ROWS):
            part = section.rows[first : first + PART_ROWS]
            rows = [[self._cell(cell, size) for cell, size in zip(row, widths, strict=True)] for row in part]
            yield self._grid([[self._paragraph(head, self._strong) for head in section.heads], *rows], widths, heads=1)

    def _cell(self, words: str, width: float) -> Any:
        """A text if it fits into one line of the regular font, because a paragraph takes ten times as long."""
        from reportlab.pdfbase.pdfmetrics import stringWidth

        words, fonts, size = visible(words), self._fonts, self._body.fontSize
        is_plain = len(words) < 60 and all(ord(character) in fonts.has for character in words)
        fits = is_plain and stringWidth(words, fonts.regular, size) < width - FRAME
        return words if fits else self._paragraph(words, self._body)

    def _grid(self, rows: Sequence[Sequence[Any]], widths: Sequence[float], heads: int = 0) -> Any:
        from reportlab.platypus import LongTable

        font = self._body.fontName, self._body.fontSize, self._body.leading
        style = [
            ("FONT", (0, 0), (-1, -1), *font),
            ("LINEBELOW", (0, 0), (-1, -1), 0.4, RULE), ("VALIGN", (0, 0), (-1, -1), "TOP"),
            ("LEFTPADDING", (0, 0), (-1, -1), 0), ("RIGHTPADDING", (0, 0), (-1, -1), 5),
            ("TOPPADDING", (0, 0), (-1, -1), 2), ("BOTTOMPADDING", (0, 0), (-1, -1), 2),
        ]  # fmt: skip
        return LongTable(
            [list(row) for row in rows], colWidths=list(widths), repeatRows=heads, style=style, hAlign="LEFT"
        )

    def _signature(self, report: Report, data: bytes, width: float) -> Iterator[Any]:
        from reportlab.platypus import HRFlowable, Spacer

        if report.is_signed_by_hand:
            yield Spacer(1, 44)
            yield HRFlowable(width=width / 2, hAlign="LEFT", thickness=0.6, color="#000000")
            yield self._paragraph("Date, name, signature", self._small)
        sealed = json.loads(data)
        yield self._paragraph("Signature", self._heading)
        words = (
            f"Signed by the hub with Ed25519. The signed file {ATTACHMENT} is attached to this PDF, and only it is "
            f"signed: these pages show its content. `{report.command} FILE.pdf --key KEY` verifies it without the hub, "
            "and prints the signed content. Get the key from the people who run the hub, not from this PDF."
        )
        yield self._paragraph(words, self._body)
        yield Spacer(1, 4)
        signed = (("Key", str(sealed["key"])), ("SHA-256", digest(data)), ("Signature", str(sealed["signature"])))
        yield from self._facts(signed, width)

    def _paragraph(self, words: str, style: Any) -> Any:
        from reportlab.platypus import Paragraph

        return Paragraph("".join(self._runs(visible(words))), style)

    def _runs(self, words: str) -> Iterator[str]:
        """Yield `words` as markup that names the fallback font where it is needed."""
        for font, characters in groupby(words, self._font_of):
            run = "".join(characters)
            if font == self._fonts.regular:
                yield escape(run)
            elif font:
                yield f'<font name="{font}">{escape(run)}</font>'
            else:
                self._has_codes = True
                yield " ".join(f"U+{ord(character):04X}" for character in run)

    def _font_of(self, character: str) -> str:
        """The font that has `character`; empty: none."""
        fonts = self._fonts
        if ord(character) in fonts.has:
            return fonts.regular
        return fonts.fallback if ord(character) in fonts.fallback_has else ""
