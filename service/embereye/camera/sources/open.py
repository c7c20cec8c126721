"""From a declared source to what can be played."""

import asyncio

from embereye.camera.sources.declared import Declared, declared
from embereye.camera.sources.file import FileSource
from embereye.camera.sources.http import HttpSource
from embereye.camera.sources.rtp import RtpSource
from embereye.camera.sources.source import Source


def open_source(source: str, dials: asyncio.Semaphore) -> Source | None:
    """The source that `source` declares, not yet opened; None: its frames are pushed. SourceError: not possible.

    `dials` bounds how many sources are being connected at the same time.
    """
    what: Declared = declared(source)
    if what.kind == "push":
        return None
    if what.kind == "rtp":
        return RtpSource(what)
    return FileSource(what.address, dials) if what.kind == "file" else HttpSource(what, dials)
