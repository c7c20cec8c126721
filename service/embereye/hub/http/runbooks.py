"""Runbooks of all alerts as pages: `/runbooks` lists them, `/runbooks/NAME` is an alert's runbook_url.

They need no sign-in: they reveal nothing about a site, and a person woken by an alert needs the page first.
"""

import functools
import html
import posixpath
import re
from importlib import resources
from importlib.resources.abc import Traversable

from aiohttp import web

from embereye.hub.http.base_path import base_of, with_base
from embereye.hub.http.openapi.parts import file_of
from embereye.hub.http.route import Route

PATH = "/runbooks"  # followed by an alert's name
LIST = "Runbooks"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>{title} · EmberEye</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/console.css">
</head>
<body class="runbook"><main>
{body}
</main></body>
</html>
"""
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")  # of Markdown: the text and the target


@functools.cache
def _pages() -> dict[str, tuple[Traversable, str]]:
    """The page of each alert, and the folder in the project to which its links are relative."""
    addons = resources.files("embereye.addons").iterdir()
    folders = [
        (resources.files("embereye.hub") / "runbooks", "docs/runbooks"),
        *((addon / "runbooks", f"service/embereye/addons/{addon.name}/runbooks") for addon in addons),
    ]
    return {
        page.name.removesuffix(".md"): (page, place)
        for folder, place in folders
        if folder.is_dir()
        for page in folder.iterdir()
        if page.name.startswith("EmberEye")
    }


def _link(place: str, match: re.Match[str]) -> str:
    text, target = match.groups()
    name = posixpath.basename(target).removesuffix(".md")
    if name in _pages():
        return f"[{text}]({PATH}/{name})"
    return f"{text} (`{posixpath.normpath(posixpath.join(place, target))}`)"  # a page that is not served here


@functools.cache  # strangers can request it as often as they like
def _page(title: str) -> str:
    """Render the page of the alert `title`; LIST: the list of all."""
    from markdown_it import MarkdownIt  # imported on first use, to save every hub's memory

    if title == LIST:
        place, markdown = "", f"# {LIST}\n" + "".join(f"* [{name}]({name}.md)\n" for name in sorted(_pages()))
    else:
        file, place = _pages()[title]
        markdown = file.read_text(encoding="utf-8")
    linked = _LINK.sub(functools.partial(_link, place), markdown)
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(linked)
    return _PAGE.format(title=html.escape(title), body=body)


def _respond(title: str, request: web.Request) -> web.Response:
    text = with_base(_page(title), base_of(request))
    return web.Response(text=text, content_type="text/html", headers={"Cache-Control": "no-cache"})


class RunbookRoutes:
    """Serves the runbooks."""

    @Route("GET", PATH, None, "List the runbooks of all alerts", {200: file_of("the list", "text/html")})
    async def _list(self, request: web.Request) -> web.Response:
        return _respond(LIST, request)

    @Route(
        "GET", f"{PATH}/{{name}}", None, "The runbook of one alert",
        {200: file_of("the page", "text/html")},
        fails=[404],
    )  # fmt: skip
    async def _runbook(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in _pages():
            raise web.HTTPNotFound
        return _respond(name, request)
