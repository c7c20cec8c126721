"""The files of the hub's pages."""

from importlib import resources

from aiohttp import web

# Name → media type. Other files are not served.
STATIC = {
    "login.js": "text/javascript",
    "console.js": "text/javascript",
    "lib.js": "text/javascript",
    "alarm.js": "text/javascript",
    "day.js": "text/javascript",
    "devices.js": "text/javascript",
    "history.js": "text/javascript",
    "silences.js": "text/javascript",
    "theme.js": "text/javascript",
    "address.js": "text/javascript",
    "plan.js": "text/javascript",
    "overlay.js": "text/javascript",
    "fleets.js": "text/javascript",
    "console.css": "text/css",
    "icon.svg": "image/svg+xml",
}


def file_response(name: str, content_type: str) -> web.Response:
    """Read the file `name`; browsers check for a newer version each time."""
    text = resources.files("embereye.hub").joinpath("static", name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=content_type, headers={"Cache-Control": "no-cache"})
