"""The files that the console loads from an add-on: the scripts and styles in its folder `static`, and their texts."""

from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable

from aiohttp import web

from embereye.hub.http.openapi.parts import file_of, part
from embereye.hub.http.route import Route

MEDIA = {".js": "text/javascript", ".css": "text/css"}


def console_text(text: str, media: str, vary: str = "Accept-Encoding") -> web.Response:
    """A file of the console, compressed if the browser accepts that. Browsers check for a newer one each time."""
    response = web.Response(text=text, content_type=media, headers={"Cache-Control": "no-cache", "Vary": vary})
    response.enable_compression()
    return response


class ConsoleFiles:
    """The routes of an add-on's files, and what the console loads of them."""

    scripts: Sequence[str]  # addresses of JavaScript modules
    messages: Traversable  # the folder with the texts of these scripts: en.json, de.json


def console_files(package: str, *loaded: str) -> ConsoleFiles:
    """Make the routes /NAME/FILE of the files of the add-on `package`, whose last part is NAME.

    The console loads the scripts `loaded`, by default NAME.js.
    """
    name, folder = package.rpartition(".")[2], resources.files(package).joinpath("static")
    media = {file.name: kind for file in folder.iterdir() for end, kind in MEDIA.items() if file.name.endswith(end)}

    class Files(ConsoleFiles):
        scripts = tuple(f"/{name}/{script}" for script in loaded or (f"{name}.js",))
        messages = resources.files(package).joinpath("messages")

        @Route(
            "GET", f"/{name}/{{file}}", None, f"Scripts and styles of the console for {name}",
            {200: file_of("the file", *dict.fromkeys(media.values()))},
            takes=[part("file", {"type": "string", "enum": sorted(media)})],
            fails=[404],
        )  # fmt: skip
        async def _file(self, request: web.Request) -> web.Response:
            file = request.match_info["file"]
            if file not in media:
                raise web.HTTPNotFound
            return console_text(folder.joinpath(file).read_text(encoding="utf-8"), media[file])

    return Files()
