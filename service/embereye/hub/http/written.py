"""Answers that take long to write out, as events in which hundreds of devices are in alarm, beside the event loop."""

import asyncio
import json
from collections.abc import Callable

from aiohttp import web

from embereye.hub.http.fleets.lists import Json


async def written(make: Callable[[], Json]) -> web.Response:
    """What `make` makes, in a thread, as JSON."""
    text = await asyncio.to_thread(lambda: json.dumps(make()))
    return web.Response(text=text, content_type="application/json")
