"""Find the streams of one camera: ONVIF, then its maker's RTSP addresses, then MJPEG.

`Probe.run` tries addresses one after another, slowly, and stops at the first that plays. Cameras lock a user, or our
address, after five or more wrong passwords. So a password is sent again only while the camera has accepted it or has
not been asked: after `MOST_REFUSALS` refusals nothing more is tried. No password is ever guessed.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from embereye.camera.discovery import ask
from embereye.camera.probe.makers import (
    HTTP_PORTS,
    KNOWN_MJPEG,
    ONVIF_PORTS,
    RTSP_PORTS,
    RTSPS_PORTS,
    maker_of,
    streams_of,
)
from embereye.camera.probe.measure import Measured, measure
from embereye.camera.sources.declared import UNVERIFIED, DeclaredSource, SourceError, conceal, parse_source, redact
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.http.source import HttpSource
from embereye.camera.sources.onvif.found import FoundCamera
from embereye.camera.sources.onvif.source import OnvifSource
from embereye.camera.sources.onvif.wanted import ANYTHING
from embereye.camera.sources.poller import SocketPoller
from embereye.camera.sources.rtsp.connection import DEFAULT_PORTS, Endpoint, RtspConnection
from embereye.camera.sources.rtsp.session import Patience, RtspSession
from embereye.camera.sources.rtsp.source import RtspSource
from embereye.camera.sources.source import Source, refusal_reason
from embereye.process.connecting import connect_any
from embereye.process.tasks import first_of
from embereye.units import bracketed
from embereye.wire.rtsp.messages import RtspError, printable

MOST_REFUSALS = 2  # refused log-ins of one probe: ONVIF's, whose users may be others, and RTSP's
PAUSE_SECONDS = 0.3  # between two requests
CONNECT_SECONDS = 3.0  # to find out which ports are open
ANSWER_SECONDS = 5.0  # for an answer
STREAM_ANSWER_SECONDS = 15.0  # for a stream's description, which go2rtc and MediaMTX give once they have it
UDP_SECONDS = 4.0  # for the first picture over UDP

Report = Callable[[str], None]  # is called with a line for people


class NoAnswerError(SourceError):
    """The camera cannot be reached, or no port of a camera is open."""


class WrongPasswordError(SourceError):
    """The camera refuses the credentials, or needs some."""


@dataclass(frozen=True)
class Found:
    """A stream that plays. `source` is what a fleet declares, without credentials."""

    source: str
    measured: Measured
    ways: Sequence[str] = ()  # transports that work: "TCP", "UDP"


@dataclass
class Camera:
    """The result of a probe."""

    host: str
    maker: str = ""
    streams: list[Found] = field(default_factory=list)  # the one to analyse first, then the one to record
    onvif: FoundCamera | None = None
    guarded: bool = False  # it asks for credentials
    notes: list[str] = field(default_factory=list)


@dataclass
class Probe:
    """One camera at `address`: a host, HOST:PORT, or a URL. Credentials are sent to no other host."""

    address: str
    user: str
    password: str
    report: Report
    maker: str = ""  # empty: find out
    seconds: float = 4.0  # to measure each stream
    connect: float = CONNECT_SECONDS
    pause: float = PAUSE_SECONDS
    spoke_rtsp: bool = False  # it has answered an RTSP request
    refusals: int = 0  # log-ins that the camera has refused
    guarded: bool = False  # the camera has asked for credentials

    def __post_init__(self) -> None:
        self._dials, self._poller = DialLimiter(1), SocketPoller()

    async def run(self) -> Camera:
        """Find the camera's streams. Raises SourceError with the reason if there are none."""
        if "://" in self.address:
            return await self._run_url(parse_source(self.address))
        place = urlsplit(f"//{self.address}")
        host, port = place.hostname or "", place.port
        camera = Camera(host)
        ports = (port,) if port else tuple(dict.fromkeys((*RTSP_PORTS, *RTSPS_PORTS, *HTTP_PORTS, *ONVIF_PORTS)))
        opened = await self._open_ports(host, ports)
        self.report(f"{host}: open: {', '.join(map(str, opened))}")
        try:
            await self._ask_onvif(camera, [port for port in ONVIF_PORTS if port in opened] or opened[:1])
            if not camera.streams:
                await self._try_rtsp(camera, opened, named=port is not None)
            if not camera.streams:
                await self._try_mjpeg(camera, opened)
        finally:
            camera.guarded = self.guarded
        if not camera.streams:
            raise self._nothing(camera, opened)
        return camera

    # What is open

    async def _open_ports(self, host: str, ports: Sequence[int]) -> list[int]:
        """Return the `ports` that accept connections. Raises NoAnswerError if none does."""
        problems = await asyncio.gather(*(self._try_port(host, port) for port in ports))
        if opened := [port for port, problem in zip(ports, problems, strict=True) if problem is None]:
            return opened
        worst = [problem for problem in problems if problem is not None]
        if (unknown := next((problem for problem in worst if isinstance(problem, socket.gaierror)), None)) is not None:
            raise NoAnswerError(f"{host}: no such host ({unknown.strerror})")
        listed = ", ".join(map(str, ports))
        if any(problem.errno == errno.ECONNREFUSED for problem in worst):
            raise NoAnswerError(
                f"{host} answers, but refuses port {listed}. Is RTSP or ONVIF enabled in the camera? "
                f"If it listens at another port, write {host}:PORT"
            )
        if (other := next((problem for problem in worst if not isinstance(problem, TimeoutError)), None)) is not None:
            raise NoAnswerError(f"{host} cannot be reached from this machine: {refusal_reason(other)}")
        raise NoAnswerError(
            f"{host}: no answer within {self.connect:g} s at port {listed}. "
            "Is it the right address, is the camera on, and is there a firewall or another network between?"
        )

    async def _try_port(self, host: str, port: int) -> OSError | None:
        try:
            async with asyncio.timeout(self.connect):
                (await connect_any(host, port)).close()
        except OSError as error:
            return error
        return None

    # One URL

    async def _run_url(self, declared: DeclaredSource) -> Camera:
        """Measure one URL, and say why if it does not play."""
        if declared.user or declared.password:
            raise SourceError("leave user and password out of the address, and use --credentials")
        if declared.kind not in {"rtsp", "http", "onvif"}:
            raise SourceError(f"a source {declared.kind}: is not asked for anything. Use rtsp, http or onvif")
        camera = Camera(urlsplit(declared.address).hostname or "", self.maker)
        if declared.kind == "rtsp":
            answered = await self._describe([declared.address], camera, verified=declared.verified)
            if not answered:
                raise SourceError(f"{redact(declared.address)}: {'; '.join(camera.notes) or 'nothing plays there'}")
        await self._measure(camera, self.address)
        camera.guarded = self.guarded
        if not camera.streams:
            raise SourceError("; ".join(camera.notes))
        return camera

    # ONVIF

    async def _ask_onvif(self, camera: Camera, ports: Sequence[int]) -> None:
        for port in ports:
            authority = bracketed(camera.host) + (f":{port}" if port != 80 else "")
            asked = await ask(FoundCamera(f"onvif://{authority}"), self.user, self.password)
            if asked.refused:
                self.guarded = True
                self.refusals += bool(self.user)
                camera.notes.append(
                    f"ONVIF at port {port}: {_plain(asked.problem)}; cameras may have separate users for it"
                )
                self.report(camera.notes[-1])
                return
            if asked.problem:
                continue
            camera.onvif = asked
            camera.maker = self.maker or maker_of(asked.maker) or asked.maker
            self.guarded = self.guarded or bool(self.user)
            self.report(f"ONVIF at port {port}: {asked.maker or 'no name'}, {len(asked.profiles)} profiles")
            for profile in asked.profiles:
                self.report(f"  {profile}")
            await self._measure(camera, asked.source)
            return

    # RTSP

    async def _try_rtsp(self, camera: Camera, opened: Sequence[int], *, named: bool) -> None:
        for port in opened:
            secure = port in RTSPS_PORTS
            if not secure and port not in RTSP_PORTS and not named:
                continue
            scheme = "rtsps" if secure else "rtsp"
            authority = bracketed(camera.host) + (f":{port}" if port != DEFAULT_PORTS[scheme] else "")
            answered = await self._describe_known(camera, scheme, authority)
            for address in answered:
                await self._measure(camera, _secure(address) if secure else address)
            if camera.streams:
                return

    async def _describe_known(self, camera: Camera, scheme: str, authority: str) -> list[str]:
        """Return the small and the large stream of the first maker whose address the camera describes."""
        first = [f"{scheme}://{authority}/"]
        answered = await self._describe(first, camera, only_identify=True)
        order = streams_of(self.maker or camera.maker)
        for known in order:
            main, sub = (_at(address, scheme, authority) for address in (known.main, known.sub))
            answered = await self._describe([main], camera)
            if answered:
                camera.maker = camera.maker or ("" if known.maker == "other" else known.maker)
                self.report(f"{redact(main)}: a stream of {known.maker}'s address {urlsplit(main).path or '/'}")
                small = await self._describe([sub], camera) if sub else []
                return [*small, *answered]
        return []

    async def _describe(
        self, addresses: Sequence[str], camera: Camera, *, verified: bool = False, only_identify: bool = False
    ) -> list[str]:
        """Return the RTSP `addresses` that the camera describes. Raises WrongPasswordError if it refuses us."""
        described = []
        for address in addresses:
            self._check_refusals()
            await asyncio.sleep(self.pause)
            user, password = ("", "") if only_identify else (self.user, self.password)
            endpoint = Endpoint(address, user, password, verified)
            connection = RtspConnection(endpoint, STREAM_ANSWER_SECONDS, lambda *_: None)
            try:
                await connection.connect()
                answer = await connection.ask("DESCRIBE", address, {"Accept": "application/sdp"})
            except (RtspError, SourceError) as error:
                camera.notes.append(f"{redact(address)}: {conceal(_plain(str(error)), address)}")
                continue
            finally:
                connection.close(address)
            self.spoke_rtsp = True
            self.guarded |= connection.is_challenged
            said = f"{answer.header('server')} {answer.header('www-authenticate')}"
            camera.maker = camera.maker or self.maker or maker_of(said)
            if answer.status == 401:
                self.guarded = True
                if only_identify:
                    continue
                raise self._refusal(camera)
            if answer.status == 200 and not only_identify:
                described.append(address)
        return described

    # MJPEG

    async def _try_mjpeg(self, camera: Camera, opened: Sequence[int]) -> None:
        for known in streams_of(self.maker or camera.maker, KNOWN_MJPEG):
            self._check_refusals()
            address = known.main.format(host=bracketed(camera.host))
            if (urlsplit(address).port or 80) not in opened:
                continue
            await asyncio.sleep(self.pause)
            await self._measure(camera, address)
            if camera.streams:
                camera.maker = camera.maker or known.maker
                return

    # Measuring

    async def _measure(self, camera: Camera, source: str) -> None:
        """Play `source` for some seconds; add it to the camera's streams, or the reason to its notes."""
        declared = parse_source(source)
        try:
            measured = await measure(self._open(declared), self.seconds)
        except SourceError as error:
            reason = _plain(conceal(str(error), source))
            if "Check the credentials" in reason:
                self.guarded = True
                raise self._refusal(camera) from error
            camera.notes.append(f"{redact(source)}: {reason}")
            self.report(camera.notes[-1])
            return
        ways = ["TCP", *(["UDP"] if await self._has_udp(declared) else [])] if declared.kind == "rtsp" else []
        camera.streams.append(Found(source, measured, ways))

    def _open(self, declared: DeclaredSource) -> Source:
        def credentials() -> tuple[str, str]:
            return self.user, self.password

        if declared.kind == "rtsp":
            return RtspSource(declared, credentials, self._dials, self._poller)
        if declared.kind == "onvif":
            return OnvifSource(declared, credentials, self._dials, self._poller, ANYTHING)
        return HttpSource(declared, credentials, self._dials, self._poller)

    def _refusal(self, camera: Camera) -> WrongPasswordError:
        if not self.user:
            return WrongPasswordError("the camera asks for a user and a password. Name them with --credentials")
        self.refusals += 1
        return WrongPasswordError(_refused(camera.maker))

    def _check_refusals(self) -> None:
        if self.refusals >= MOST_REFUSALS:
            raise WrongPasswordError(_refused(""))

    def _nothing(self, camera: Camera, opened: Sequence[int]) -> SourceError:
        """Say why nothing was found: the reasons that are more than a wrong path, and what to do."""
        reasons = "; ".join(dict.fromkeys(camera.notes))
        if not self.spoke_rtsp and camera.onvif is None:
            listed = ", ".join(map(str, opened))
            return NoAnswerError(
                f"{camera.host}: port {listed} is open, but speaks neither RTSP nor ONVIF"
                + (f" ({reasons})" if reasons else "")
                + ". Enable one of them in the camera, or name its port"
            )
        return SourceError(
            f"{camera.host}: none of the known addresses plays"
            + (f" ({reasons})" if reasons else "")
            + f". Name the stream, as the camera's manual does: embereye camera probe rtsp://{camera.host}/PATH"
        )

    async def _has_udp(self, declared: DeclaredSource) -> bool:
        """Play the stream over UDP until its first picture."""
        picture = asyncio.Event()
        endpoint = Endpoint(declared.address, self.user, self.password, declared.verified)
        session = RtspSession(
            endpoint, lambda *_: picture.set(), lambda _: None, self._poller, Patience(ANSWER_SECONDS, UDP_SECONDS)
        )
        try:
            if await session.describe():
                return False
            await session.set_up(udp=True)
            if session.transport != "UDP":
                return False
            await first_of(session.play(), picture.wait(), timeout=UDP_SECONDS)
        except (RtspError, SourceError):
            return False
        finally:
            session.close()
        return picture.is_set()


def _at(address: str, scheme: str, authority: str) -> str:
    """Fill in an address of the table, with another scheme; empty if there is none."""
    return address.replace("rtsp://{host}", f"{scheme}://{authority}")


def _secure(address: str) -> str:
    """Accept the certificate that cameras sign themselves."""
    return f"{address}{'&' if '?' in address else '?'}{UNVERIFIED}"


def _refused(maker: str) -> str:
    return (
        "the camera refuses this user and password. It was asked no more, because many cameras lock a user after five "
        "wrong passwords"
        + (f" ({maker}: wait half an hour, or restart it, if it is locked already)" if maker == "Hikvision" else "")
        + ". Check them in the camera's web page: some makers have separate users for ONVIF and RTSP"
    )


def _plain(text: str) -> str:
    return printable(text, 300)
