"""Plays one source as a shard does, and prints a line per picture: `python stopped_player.py http|rtsp ADDRESS`.

At the end it prints why the source ended.
"""

import sys

import uvloop

from embereye.camera.sources.declared import SourceError, parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.http.source import HttpSource
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtsp.source import RtspSource


async def play(kind: str, address: str) -> None:
    """Play until it ends."""
    opened = HttpSource if kind == "http" else RtspSource
    declared, dials = parse_source(address), DialLimiter(1)
    source = opened(declared, lambda: ("", ""), dials, SocketPoller(), dial=5.0, stall=1.0)
    try:
        await source.play(lambda *_: print("picture", flush=True), lambda _: None)
    except SourceError as error:
        print(error, flush=True)


uvloop.run(play(*sys.argv[1:]))
