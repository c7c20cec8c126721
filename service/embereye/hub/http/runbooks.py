"""Runbooks of all alerts as pages: `/runbooks` lists them, `/runbooks/NAME` is an alert's runbook_url.

They need no sign-in: they reveal nothing about a site, and a person woken by an alert needs the page first.
"""

import functools
import html
import re
from importlib import resources

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
def _names() -> list[str]:
    folder = resources.files("embereye.hub").joinpath("runbooks")
    return sorted(file.name.removesuffix(".md") for file in folder.iterdir() if file.name.startswith("EmberEye"))


def _link(match: re.Match[str]) -> str:
    text, target = match.groups()
    if target.startswith("../"):  # to a page of docs/ that is not served here
        return f"{text} (`{target.replace('../', 'docs/', 1)}`)"
    return f"[{text}]({PATH}/{target.removesuffix('.md')})"


@functools.cache  # strangers can request it as often as they like
def _page(title: str) -> str:
    """Render the page of the alert `title`; LIST: the list of all."""
    from markdown_it import MarkdownIt  # imported on first use, to save every hub's memory

    if title == LIST:
        markdown = f"# {LIST}\n" + "".join(f"* [{name}]({name}.md)\n" for name in _names())
    else:
        file = resources.files("embereye.hub").joinpath("runbooks", f"{title}.md")
        markdown = file.read_text(encoding="utf-8")
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(_LINK.sub(_link, markdown))
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
        if name not in _names():
            raise web.HTTPNotFound
        return _respond(name, request)
