"""Looks for cameras in the network (WS-Discovery, IPv4) and asks each for its profiles (ONVIF)."""

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

PROBES = (0.0, 0.5, 1.5)  # seconds after the start: datagrams get lost
MOST_CAMERAS = 512  # of one search
MOST_ANSWERS = 20_000  # datagrams of one search that are read
AT_ONCE = 8  # cameras that are asked at the same time
ANSWER_SECONDS = 5.0  # for each answer of a camera
ASK_SECONDS = 15.0  # for all that one camera is asked
_ADDRESS_OF = 0x8915  # SIOCGIFADDR, netdevice(7)

Tell = Callable[[str], None]


def addresses(names: Iterable[str]) -> dict[str, str]:
    """The IPv4 address of each interface by its name; `names` are of interfaces or addresses, none: all but loopback.

    UserError where there is no such interface, or none has an address.
    """
    known = {name: address for _, name in socket.if_nameindex() if (address := _address_of(name))}
    found: dict[str, str] = {}
    for named in names:
        match = next((name for name, address in known.items() if named in {name, address}), None)
        if match is None:
            has = ", ".join(f"{name} ({address})" for name, address in known.items()) or "none"
            raise UserError(
                f'--interface "{named}": this machine has no such interface with an IPv4 address, only {has}'
            )
        found[match] = known[match]
    found = found or {name: address for name, address in known.items() if not address.startswith("127.")}
    if not found:
        raise UserError("no interface has an IPv4 address: name one with --interface, or cameras with --host")
    return found


def _address_of(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, contextlib.suppress(OSError):
        answer = fcntl.ioctl(asked.fileno(), _ADDRESS_OF, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return ""


async def search(interfaces: Iterable[str], seconds: float, tell: Tell) -> list[FoundCamera]:
    """Probe by the interfaces with these addresses for `seconds`; the cameras that answered, each once.

    UserError where it cannot be sent by any of them.
    """
    message = str(uuid.uuid4())
    found: dict[str, FoundCamera] = {}
    left = MOST_ANSWERS

    def receive(receiver: socket.socket) -> None:
        nonlocal left
        with contextlib.suppress(OSError):
            while left:
                data, sender = receiver.recvfrom(MAX_ANSWER)
                left -= 1
                for match in read_matches(data, message):
                    camera = located(match, sender[0])
                    if camera and camera.source not in found and len(found) < MOST_CAMERAS:
                        found[camera.source] = camera
                        said = f"{printable(camera.name)} {printable(camera.maker)}".strip()
                        tell(f"{camera.source} answers{f': {said}' if said else ''}")

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
    return list(found.values())


def _sender(address: str) -> socket.socket:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sender.bind((address, 0))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    except OSError as error:
        sender.close()
        raise UserError(f"cannot probe from {address}: {error.strerror}") from error
    return sender


def _send(senders: Sequence[socket.socket], data: bytes) -> None:
    """Send `data` by every sender; UserError where none could."""
    problems = []
    for sender in senders:
        try:
            sender.sendto(data, (GROUP_V4, PORT))
        except OSError as error:
            problems.append(f"{sender.getsockname()[0]}: {error.strerror}")
    if senders and len(problems) == len(senders):
        raise UserError(f"cannot send a probe by any interface: {'; '.join(problems)}")


async def ask_all(cameras: Sequence[FoundCamera], user: str, password: str, tell: Tell) -> list[FoundCamera]:
    """`cameras` with what each of them says of itself and its profiles, in their order."""
    turns, done = asyncio.Semaphore(AT_ONCE), 0

    async def ask_one(camera: FoundCamera) -> FoundCamera:
        nonlocal done
        async with turns:
            asked = await ask(camera, user, password)
        done += 1
        tell(f"{done}/{len(cameras)} {camera.source}: {asked.problem or counted(len(asked.profiles), 'profile')}")
        return asked

    return list(await asyncio.gather(*(ask_one(camera) for camera in cameras)))


async def ask(camera: FoundCamera, user: str, password: str) -> FoundCamera:
    """`camera` with what it says of itself and its profiles; what went wrong stands in its `problem`."""
    camera = replace(camera, proven=bool(user))
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
