"""A camera whose streams are found by ONVIF; without a stream, it sends JPEG snapshots on request.

Each `play` asks the camera again for its profiles, chooses one and asks for its stream. An `RtspSource` plays the
stream. It is used again while the address stays the same, because it remembers whether TCP or UDP works. Snapshots are
requested at a fixed rate. The state and every failure name the chosen profile and the reason.
"""

import asyncio
import logging
from dataclasses import dataclass, field, replace

import aiohttp

from embereye.camera.scheduling.mailbox import MAX_BYTES
from embereye.camera.sources.declared import SourceError, conceal
from embereye.camera.sources.http.source import get, readable_errors
from embereye.camera.sources.onvif.choice import Choice, choose_recorded, choose_watched
from embereye.camera.sources.onvif.client import OnvifClient, RefusedError, open_session, read_body
from embereye.camera.sources.onvif.wanted import VIDEO, Wanted
from embereye.camera.sources.rtsp.session import FORMATS
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.camera.sources.source import NetworkSource, Offer, SetState
from embereye.wire.onvif.media import Profile
from embereye.wire.rtsp.messages import printable

logger = logging.getLogger(__name__)

FRAME_RATE = 5.0  # snapshots/s, at most: cameras make them slowly
RESOLVE_SECONDS = 15.0  # for all questions until the stream is known


@dataclass(eq=False)
class OnvifSource(NetworkSource):
    """A camera found by ONVIF; see `Source`."""

    wanted: Wanted
    _logged_choice: str = field(default="", init=False)  # description of the choice that was logged last
    # the latest: its source remembers whether TCP or UDP works
    _stream: tuple[str, RtspSource] | None = field(default=None, init=False)

    async def play(self, offer: Offer, set_state: SetState) -> None:
        """Find the stream and play it until it ends. Raises SourceError with the reason if it fails."""
        set_state("asking by ONVIF")
        with readable_errors(self.dial):
            async with open_session(self.dial) as session:
                client = OnvifClient(session, self.declared, *self.credentials())
                async with self.dials, asyncio.timeout(RESOLVE_SECONDS):
                    choice, address = await self._find_stream(client)
                if choice is None:
                    await self._play_snapshots(session, address, offer, set_state)
                    return
        await self._play_stream(choice, address, offer, set_state)

    async def _find_stream(self, client: OnvifClient) -> tuple[Choice | None, str]:
        """Return the profile to play and its RTSP address; without a profile, the address of snapshots."""
        await client.connect()
        profiles = await client.profiles()
        wanted = self.wanted
        choice = (
            choose_recorded(profiles, wanted.profile)
            if wanted.recorded
            else choose_watched(profiles, wanted.profile, wanted.least_rate)
        )
        if choice and not self.declared.snapshots:
            try:
                if address := await client.stream_address(choice.profile):
                    return choice, address
            except RefusedError as error:
                if wanted.profile:
                    raise SourceError(f"{error} (profile {choice.profile})") from error
                logger.info("ONVIF: profile %s: no stream, using snapshots (%s)", choice.profile, error)
        if wanted.recorded:
            raise SourceError("ONVIF: the camera has no stream for the profile to record")
        profile = choice.profile if choice else profiles[0]
        if address := await client.snapshot_address(profile):
            return None, address
        raise SourceError(_nothing_playable(profiles))

    async def _play_stream(self, choice: Choice, address: str, offer: Offer, set_state: SetState) -> None:
        description = f"ONVIF profile {choice.profile}: {choice.why}"
        if description != self._logged_choice:
            self._logged_choice = description
            logger.info(
                "camera %s: %s", printable(self.declared.address.partition("://")[2].partition("/")[0]), description
            )
        if not self._stream or self._stream[0] != address:
            stream = replace(self.declared, kind="rtsp", address=address)
            formats = VIDEO if self.wanted.recorded else FORMATS
            source = RtspSource(stream, self.credentials, self.dials, self.poller, formats=formats)
            self._stream = address, source
        try:
            await self._stream[1].play(offer, lambda state: set_state(f"{state}; {description}"))
        except SourceError as error:
            raise type(error)(f"{conceal(str(error), address)}; {description}") from error

    async def _play_snapshots(
        self, session: aiohttp.ClientSession, address: str, offer: Offer, set_state: SetState
    ) -> None:
        period = 1.0 / min(FRAME_RATE, self.wanted.rate or FRAME_RATE)
        loop = asyncio.get_running_loop()
        user, password = self.credentials()
        due = loop.time()
        while True:
            response = await get(session, address, user, password, verified=self.declared.verified)
            offer(await read_body(response, MAX_BYTES))
            set_state("streaming snapshots")
            due = max(due + period, loop.time())
            await asyncio.sleep(due - loop.time())


def _nothing_playable(profiles: list[Profile]) -> str:
    """Describe a camera that has nothing to play."""
    return f"ONVIF: the camera has neither a stream nor snapshots of {', '.join(map(str, profiles[:4]))}"
