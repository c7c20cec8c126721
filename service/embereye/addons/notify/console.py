"""The files that the console loads: scripts and styles of notifications and the siren, and the worker of Web Push."""

from importlib import resources

from aiohttp import web

from embereye.hub.http.openapi.parts import file_of, part
from embereye.hub.http.route import Route

SCRIPT = "text/javascript"
FILES = {
    **dict.fromkeys(
        ("dialog.js", "notify.js", "push.js", "siren.js", "sound.js", "ticker.js", "undeclared.js", "worker.js"), SCRIPT
    ),
    "notify.css": "text/css",
}
SCRIPTS = ("/notify/siren.js", "/notify/notify.js")
MESSAGES = (resources.files(__package__).joinpath("messages"),)
SCRIPTS_WITHOUT_ROUTES = ("/notify/siren.js", "/notify/undeclared.js")


class ConsoleRoutes:
    """Serves the files."""

    @Route(
        "GET", "/notify/{file}", None, "Scripts and styles of the console for notifications",
        {200: file_of("the file", *dict.fromkeys(FILES.values()))},
        takes=[part("file", {"type": "string", "enum": list(FILES)})],
        fails=[404],
    )  # fmt: skip
    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in FILES:
            raise web.HTTPNotFound
        text = resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")
        headers = {"Cache-Control": "no-cache"}
        return web.Response(text=text, content_type=FILES[name], headers=headers)
