"""Routes of the console, the sign-in page, and their files."""

from collections.abc import Sequence
from importlib import resources
from itertools import chain

from aiohttp import web

from embereye.hub.http.base_path import base_of, with_base
from embereye.hub.http.console_files import ConsoleFiles, console_text
from embereye.hub.http.languages import Languages
from embereye.hub.http.openapi.parts import answer, file_of, part
from embereye.hub.http.route import Route
from embereye.hub.roles import Role

HTML = "text/html"
SCRIPT = "text/javascript"
WORKER = "service-worker.js"
FOLDER = resources.files("embereye.hub").joinpath("static")
SCRIPTS = sorted(file.name for file in FOLDER.iterdir() if file.name.endswith(".js") and file.name != WORKER)
STATIC = {  # name → media type; other files are not served
    **dict.fromkeys(SCRIPTS, SCRIPT),
    "offline.html": HTML,
    "manifest.webmanifest": "application/manifest+json",
    "console.css": "text/css",
    "icon.svg": "image/svg+xml",
}
TRANSLATED = frozenset({"offline.html", "manifest.webmanifest"})


class PageRoutes:
    """Serves the console, the sign-in page, and their files."""

    def __init__(self, consoles: Sequence[ConsoleFiles] = ()) -> None:
        """`consoles` are the files of add-ons that the console loads."""
        self._languages = Languages([console.messages for console in consoles])
        scripts = chain.from_iterable(console.scripts for console in consoles)
        self._scripts = "".join(f'<script src="{script}" type="module"></script>\n' for script in scripts)

    @Route("GET", "/", Role.VIEWER, "The console", {200: file_of("the page", HTML), 303: answer("sign in first")},
           scoped=True)  # fmt: skip
    async def _console(self, request: web.Request) -> web.Response:
        return self._page(request, "index.html", self._scripts)

    @Route("GET", "/login", None, "The sign-in page", {200: file_of("the page", HTML)})
    async def _login(self, request: web.Request) -> web.Response:
        return self._page(request, "login.html")

    @Route("GET", f"/{WORKER}", None, "The script of the installed console", {200: file_of("it is", SCRIPT)})
    async def _service_worker(self, _: web.Request) -> web.Response:
        # At the root, because a browser lets it serve only addresses below its own.
        return _file(WORKER, SCRIPT)

    @Route(
        "GET", "/static/{name}", None, "Scripts and styles of the pages",
        {200: file_of("the file", *STATIC.values())},
        takes=[part("name", {"type": "string", "enum": list(STATIC)})],
        fails=[404],
    )  # fmt: skip
    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in STATIC:
            raise web.HTTPNotFound
        if name in TRANSLATED:
            return self._page(request, name)
        return _file(name, STATIC[name])

    def _page(self, request: web.Request, name: str, head: str = "") -> web.Response:
        """Read the page `name` in the caller's language, with `head` and links below the base path."""
        page = self._languages.translate(_read(name), self._languages.of(request))
        page = page.replace("</head>", f"{head}</head>", 1) if head else page
        page = with_base(page, base_of(request))
        return console_text(page, STATIC.get(name, HTML), "Accept-Encoding, Accept-Language, Cookie")


def _file(name: str, content_type: str) -> web.Response:
    return console_text(_read(name), content_type)


def _read(name: str) -> str:
    return FOLDER.joinpath(name).read_text(encoding="utf-8")
