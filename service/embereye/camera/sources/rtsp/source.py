"""Cameras that send JPEG, H.264 or H.265 by RTSP.

Each `play` is one `RtspSession` per redirect: describe, set up, play. Only the first two are limited by `dials`. A
redirect has to stay on the declared host, and another port gets no credentials, unless it is the port of RTSP over TLS.
If no packets arrive by one transport, the next `play` uses the other one.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from urllib.parse import SplitResult, urlsplit

from embereye.camera.sources.declared import SourceError, redact
from embereye.camera.sources.rtsp.connection import DEFAULT_PORTS, Endpoint
from embereye.camera.sources.rtsp.session import FORMATS, STALL_SECONDS, Patience, RtspSession, SilentError
from embereye.camera.sources.source import NetworkSource, Offer, SetState
from embereye.wire.rtsp.messages import RtspError, printable

REDIRECTS = 3  # followed, at most


def _port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS[parts.scheme]


@dataclass(eq=False)
class RtspSource(NetworkSource):
    """A camera that sends by RTSP; see `Source`. It plays the first of `formats` that the camera has."""

    _: KW_ONLY
    stall: float = STALL_SECONDS
    formats: Sequence[str] = FORMATS

    def __post_init__(self) -> None:
        """Begin with the declared transport."""
        self._udp = self.declared.transport == "udp"

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Play the camera's pictures until it ends."""
        url, patience = self.declared.address, Patience(self.dial, self.stall)
        user, password = self.credentials()
        declared = urlsplit(url)
        for _ in range(REDIRECTS + 1):
            at = urlsplit(url)
            if at.hostname != declared.hostname:  # a camera must not lead us to other services
                raise SourceError(
                    f'redirected to "{printable(redact(url))}", which is not its host. If that is the camera, declare '
                    "that address"
                )
            secure = at.scheme == "rtsps" and _port(at) == DEFAULT_PORTS["rtsps"]
            if _port(at) != _port(declared) and not secure:  # another program may listen at another port
                user = password = ""
            endpoint = Endpoint(url, user, password, self.declared.verified)
            session = RtspSession(endpoint, offer, set_state, self.poller, patience, self.formats)
            try:
                async with self.dials:
                    redirect = await session.describe()
                    if not redirect:
                        await session.set_up(udp=self._udp)
                if redirect:
                    url = redirect
                    continue
                await session.play()
            except SilentError as error:
                # Packets that do not arrive by one transport may arrive by the other.
                self._udp = not self._udp
                transport = "UDP" if self._udp else "TCP"
                raise SourceError(f"{error}; trying {transport}") from error
            except RtspError as error:
                raise SourceError(f"RTSP: {error}") from error
            finally:
                session.close()
        raise SourceError(f"redirected more than {REDIRECTS} times")
