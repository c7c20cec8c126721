"""Pages and lines of text for people about signed files and incidents (pure). The pages need no script."""

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from embereye.process.signing import digest
from embereye.process.telemetry.logs import visible

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#111;background:#fff}h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}td,th{text-align:left;border-bottom:1px solid #ccc;
padding:.3rem .6rem .3rem 0;vertical-align:top}td,code{overflow-wrap:anywhere}code{font-size:.75rem}"""


def safe(words: str) -> str:
    """Escape `words` for HTML, with control characters made visible."""
    return escape(visible(words))


def begin(title: str, facts: Iterable[tuple[str, str]], style: str = "") -> Iterator[str]:
    """Yield a page up to the table of its facts; `style` is added to that of all pages."""
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{safe(title)}</title><style>{STYLE}{style}</style></head><body><main><h1>{safe(title)}</h1><table>"
    for name, value in facts:
        yield f'<tr><th scope="row">{name}</th><td>{safe(value)}</td></tr>'
    yield "</table>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table."""
    yield "<table><thead><tr>"
    yield from (f'<th scope="col">{head}</th>' for head in heads)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{safe(cell)}</td>" for cell in row) + "</tr>"
    yield "</tbody></table>"


def as_text(title: str, facts: Iterable[tuple[str, str]], rows: Iterable[Sequence[str]], data: bytes) -> str:
    """The lines of a report in the signed file `data`."""
    lines = [title, "", *(f"{name + ':':<9} {visible(value)}" for name, value in facts)]
    lines += ["", *(visible("  ".join(filter(None, cells))) for cells in rows)]
    lines += ["", f"SHA-256 {digest(data)}", f"key     {json.loads(data)['key']}"]
    return "\n".join(lines)
