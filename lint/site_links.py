"""Hook of the documentation site: add the pages of add-ons, and show links that leave the site as paths.

A page may link to a file of the project outside docs/, such as ../../ARCHITECTURE.md. On GitHub that link works; the
site has no such page, so the reader sees the file's path instead.

The pages of add-ons are in their folders: a README.md becomes how-to/NAME.md, below "Add-ons" in the navigation, with
docs/PAGE.md as how-to/NAME-PAGE.md. Runbooks join the others. The links of these pages are relative to their folders,
so they are translated for the site.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ADDONS = "service/embereye/addons"
LIST = "how-to/add-ons.md"  # on the site, this page lists the others
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def addon_pages() -> dict[str, str]:
    """Return the pages of the add-ons: the path below docs/ that each has on the site → its path in the project."""
    pages = {LIST: ROOT / ADDONS / "README.md"}
    pages |= {f"how-to/{page.parent.name}.md": page for page in sorted((ROOT / ADDONS).glob("*/README.md"))}
    guides = sorted((ROOT / ADDONS).glob("*/docs/*.md"))
    pages |= {f"how-to/{page.parents[1].name}-{page.name}": page for page in guides}
    pages |= {f"runbooks/{page.name}": page for page in sorted((ROOT / ADDONS).glob("*/runbooks/*.md"))}
    return {source: page.relative_to(ROOT).as_posix() for source, page in pages.items()}


def show_paths(markdown: str, source: str) -> str:
    """Replace links that leave the site in the page `source` (its path below docs/) by their text and path.

    Raises FileNotFoundError for a link to a file that does not exist.
    """
    addons = addon_pages()
    file, on_site = addons.get(source, f"docs/{source}"), {path: page for page, path in addons.items()}

    def translate(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        if page := path.removeprefix("docs/") if path.startswith("docs/") else on_site.get(path):
            return f"[{text}]({posixpath.relpath(page, posixpath.dirname(source))}{anchor or ''})"
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{file}: {target}: no such file. Correct the link.")
        return f"`{path}`" if posixpath.basename(path) in text else f"{text} (`{path}`)"

    return LINK.sub(translate, markdown)


def on_config(config: Any) -> Any:
    """Add the add-ons to the navigation; mkdocs calls this first."""
    (how_to,) = (section["How-to"] for section in config.nav if "How-to" in section)
    how_to.append({"Add-ons": [page for page in addon_pages() if page.startswith("how-to/")]})
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages of the add-ons; mkdocs calls this once it has collected those in docs/."""
    from mkdocs.structure.files import File

    for source, path in addon_pages().items():
        files.append(File.generated(config, source, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Prepare a page's text; mkdocs calls this for every page."""
    source = page.file.src_uri
    listed = [path for path in addon_pages() if source == LIST and path.startswith("how-to/") and path != LIST]
    titles = {path: (ROOT / addon_pages()[path]).read_text().partition("\n")[0].lstrip("# ") for path in listed}
    links = (f"* [{title}]({posixpath.basename(path)})\n" for path, title in titles.items())
    return "\n".join(filter(None, (show_paths(markdown, source), "".join(links))))
