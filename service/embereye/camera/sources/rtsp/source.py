"""Cameras that are asked for their JPEG, H.264 or H.265 by RTSP."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from embereye.camera.sources.credentials import Credentials
from embereye.camera.sources.declared import DeclaredSource, SourceError
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtsp.connection import Endpoint
from embereye.camera.sources.rtsp.session import (
    DIAL_SECONDS,
    FORMATS,
    STALL_SECONDS,
    Patience,
    RtspSession,
    SilentError,
)
from embereye.camera.sources.source import Offer, SetState
from embereye.wire.rtsp.messages import RtspError

REDIRECTS = 3  # that are followed


class RtspSource:
    """One such camera; see `Source`. `formats` are taken, the first of them that it has."""

    def __init__(
        self, what: DeclaredSource, credentials: Credentials, dials: DialLimiter, poller: SocketPoller,
        *, dial: float = DIAL_SECONDS, stall: float = STALL_SECONDS, formats: Sequence[str] = FORMATS,
    ) -> None:  # fmt: skip
        self._what = what
        self._formats = formats
        self._credentials = credentials
        self._dials = dials
        self._poller = poller
        self._patience = Patience(dial, stall)
        self._udp = what.transport == "udp"

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Play the camera's pictures until it ends."""
        url = self._what.address
        user, password = self._credentials()
        host = urlsplit(url).hostname
        for _ in range(REDIRECTS + 1):
            if urlsplit(url).hostname != host:  # no other host gets them
                user = password = ""
            endpoint = Endpoint(url, user, password, self._what.proven)
            session = RtspSession(endpoint, offer, set_state, self._poller, self._patience, self._formats)
            try:
                async with self._dials:
                    moved = await session.describe()
                    if not moved:
                        await session.set_up(udp=self._udp)
                if moved:
                    url = moved
                    continue
                await session.play()
            except SilentError as error:
                # Packets that do not come by one way may come by the other.
                self._udp = not self._udp
                way = "UDP" if self._udp else "TCP"
                raise SourceError(f"{error}; trying {way}") from error
            except RtspError as error:
                raise SourceError(f"RTSP: {error}") from error
            finally:
                session.close()
        raise SourceError(f"redirected more than {REDIRECTS} times")
