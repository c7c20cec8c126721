"""Hook of the documentation site: show links that leave docs/ as paths, and fail if their target is missing.

A page may link to a file of the project outside docs/, such as ../../ARCHITECTURE.md. On GitHub that link works; the
site has no such page, so the reader sees the file's path instead.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]*)(?:#[^)\s]*)?\)")


def show_paths(markdown: str, source: str) -> str:
    """Replace links that leave docs/ in the page `source` (its path below docs/) by their text and path.

    Raises FileNotFoundError for a link to a file that does not exist.
    """

    def path_for(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), target))
        if path.startswith("docs/"):
            return match[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"docs/{source}: {target}: no such file. Correct the link.")
        return f"`{path}`" if posixpath.basename(path) in text else f"{text} (`{path}`)"

    return LINK.sub(path_for, markdown)


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Prepare a page's text; mkdocs calls this for every page."""
    return show_paths(markdown, page.file.src_uri)
