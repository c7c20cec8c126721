"""Search for cameras in the network (WS-Discovery, IPv4), and reading of each camera's profiles (ONVIF).

`search` sends probes by multicast from each interface and collects answers until the time is over. `ask_all` then asks
the cameras, a few at a time, for profiles and information. A camera that fails gets a `problem` and does not end the
search. Anybody can answer, so the number of answers is limited and only the address that sent one is contacted.
"""

import asyncio
import contextlib
import fcntl
import socket
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from embereye.camera.sources.declared import SourceError, conceal, parse_source
from embereye.camera.sources.http.source import readable_errors
from embereye.camera.sources.onvif.client import OnvifClient, RefusedError, open_session
from embereye.camera.sources.onvif.found import FoundCamera, located
from embereye.process.lifecycle import UserError
from embereye.units import counted
from embereye.wire.onvif.discovery import GROUP_V4, MAX_ANSWER, PORT, probe, read_matches
from embereye.wire.rtsp.messages import printable

PROBES = (0.0, 0.5, 1.5)  # seconds after the start; repeated because datagrams get lost
MAX_CAMERAS = 512  # found in one search, at most
MAX_ANSWERS = 20_000  # datagrams read in one search, at most
AT_ONCE = 8  # cameras asked at the same time
ANSWER_SECONDS = 5.0  # for each answer of a camera
ASK_SECONDS = 15.0  # for all questions to one camera
_ADDRESS_OF = 0x8915  # SIOCGIFADDR, netdevice(7)

Progress = Callable[[str], None]  # is called with a line for people


def addresses(names: Iterable[str]) -> dict[str, str]:
    """Return the IPv4 address of each interface by its name.

    `names` lists interfaces or addresses; if it is empty, all interfaces except loopback are used. Raises UserError if
    a named interface does not exist or no interface has an address.
    """
    known = {name: address for _, name in socket.if_nameindex() if (address := _address_of(name))}
    selected: dict[str, str] = {}
    for named in names:
        match = next((name for name, address in known.items() if named in {name, address}), None)
        if match is None:
            has = ", ".join(f"{name} ({address})" for name, address in known.items()) or "none"
            raise UserError(
                f'--interface "{named}": this machine has no such interface with an IPv4 address, only {has}'
            )
        selected[match] = known[match]
    selected = selected or {name: address for name, address in known.items() if not address.startswith("127.")}
    if not selected:
        raise UserError("no network interface has an IPv4 address. Name one with --interface, or cameras with --host")
    return selected


def _address_of(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        answer = fcntl.ioctl(asked.fileno(), _ADDRESS_OF, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return ""


async def search(interfaces: Iterable[str], seconds: float, report: Progress) -> list[FoundCamera]:
    """Send probes from the interface addresses for `seconds` and return each camera that answers once.

    Raises UserError if no interface can send.
    """
    message = str(uuid.uuid4())
    cameras: dict[str, FoundCamera] = {}
    left = MAX_ANSWERS

    def receive(receiver: socket.socket) -> None:
        nonlocal left
        with contextlib.suppress(OSError):
            while left:
                data, sender = receiver.recvfrom(MAX_ANSWER)
                left -= 1
                for match in read_matches(data, message):
                    camera = located(match, sender[0])
                    if camera and camera.source not in cameras and len(cameras) < MAX_CAMERAS:
                        cameras[camera.source] = camera
                        description = f"{printable(camera.name)} {printable(camera.maker)}".strip()
                        report(f"{camera.source} answers{f': {description}' if description else ''}")

    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(_sender(address)) for address in interfaces]
        for sender in senders:
            loop.add_reader(sender, receive, sender)
            stack.callback(loop.remove_reader, sender)
        until = loop.time() + seconds
        for pause in (later - sooner for sooner, later in zip(PROBES, (*PROBES[1:], seconds), strict=True)):
            _send(senders, probe(message))
            await asyncio.sleep(max(0.0, min(pause, until - loop.time())))
        await asyncio.sleep(max(0.0, until - loop.time()))
    return list(cameras.values())


def _sender(address: str) -> socket.socket:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sender.bind((address, 0))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    except OSError as error:
        sender.close()
        raise UserError(f"{address}: cannot send probes from this address: {error.strerror}") from error
    return sender


def _send(senders: Sequence[socket.socket], data: bytes) -> None:
    """Send `data` by every sender; raise UserError if all fail."""
    problems = []
    for sender in senders:
        try:
            sender.sendto(data, (GROUP_V4, PORT))
        except OSError as error:
            problems.append(f"{sender.getsockname()[0]}: {error.strerror}")
    if senders and len(problems) == len(senders):
        raise UserError(f"probes: cannot be sent by any interface: {'; '.join(problems)}")


async def ask_all(cameras: Sequence[FoundCamera], user: str, password: str, report: Progress) -> list[FoundCamera]:
    """Add each camera's information and profiles to `cameras`, in their order."""
    turns, done = asyncio.Semaphore(AT_ONCE), 0

    async def ask_one(camera: FoundCamera) -> FoundCamera:
        nonlocal done
        async with turns:
            asked = await ask(camera, user, password)
        done += 1
        report(f"{done}/{len(cameras)} {camera.source}: {asked.problem or counted(len(asked.profiles), 'profile')}")
        return asked

    return list(await asyncio.gather(*(ask_one(camera) for camera in cameras)))


async def ask(camera: FoundCamera, user: str, password: str) -> FoundCamera:
    """Add the camera's information and profiles, or its `problem`."""
    camera = replace(camera, authenticated=bool(user))
    try:
        with readable_errors(ANSWER_SECONDS):
            async with open_session(ANSWER_SECONDS) as session, asyncio.timeout(ASK_SECONDS):
                client = OnvifClient(session, parse_source(camera.source), user, password)
                await client.connect()
                camera = replace(camera, profiles=await client.profiles())
                with contextlib.suppress(RefusedError):
                    information = await client.information()
                    maker = f"{information.manufacturer} {information.model}".strip()
                    camera = replace(camera, maker=maker or camera.maker, serial=information.serial)
    except SourceError as error:
        return camera.with_problem(conceal(str(error), camera.source), refused="credentials" in str(error))
    return camera
