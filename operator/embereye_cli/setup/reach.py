"""Checks that cameras answer: each plays for a moment, as `embereye camera probe` measures it.

Cameras of one host are tried one after another, and no longer with a login that the host has refused: a recorder could
lock the user out.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import urlsplit

from embereye.camera.probe.measure import measure
from embereye.camera.sources.declared import DeclaredSource, RefusedCredentialsError, SourceError, conceal, parse_source
from embereye.camera.sources.dials import DialLimiter
from embereye.camera.sources.open import open_source
from embereye.camera.sources.poller import SocketPoller
from embereye_cli.setup.findings import FAIL, OK, WARN, Finding
from embereye_operator.api.cameras import Camera, exposed_passwords
from embereye_operator.api.fleets import Fleet

HOSTS = 4  # tried at the same time
SECONDS = 1.5  # to measure a stream
LONGEST_KEY_SECONDS = 4.0
PASSIVE = {"push": "waits for a program that pushes", "rtp": "waits for a sender"}


def cameras_of(fleets: Iterable[Fleet]) -> list[Camera]:
    """List the cameras that `fleets` declare."""
    return [device for fleet in fleets for device in fleet.devices if isinstance(device, Camera)]


async def check_cameras(cameras: Iterable[Camera]) -> list[Finding]:
    """Play each of `cameras` for a moment."""
    by_host: dict[str, list[tuple[Camera, DeclaredSource]]] = defaultdict(list)
    for camera in cameras:
        declared = parse_source(camera.source)
        host = urlsplit(declared.address).hostname if "://" in declared.address else ""
        by_host[host or declared.address].append((camera, declared))
    places = asyncio.Semaphore(HOSTS)

    async def check_host(listed: list[tuple[Camera, DeclaredSource]]) -> list[Finding]:
        refused: set[str] = set()
        async with places:
            return [await _check(camera, declared, refused) for camera, declared in listed]

    return [each for listed in await asyncio.gather(*map(check_host, by_host.values())) for each in listed]


async def _check(camera: Camera, declared: DeclaredSource, refused: set[str]) -> Finding:
    """Play `camera`; `refused` are the logins that its host has refused, and get this one if it is."""
    subject, secret = f"camera {camera.id}", camera.credentials_ref.name if camera.credentials_ref else ""
    if why := PASSIVE.get(declared.kind):
        return Finding(subject, OK, f"{why}; not tried")
    login = secret or f"{declared.user}:{declared.password}"
    if login in refused:
        return Finding(subject, FAIL, "not tried: the host has refused the same login", "see the camera above")
    try:
        source = open_source(camera.source, DialLimiter(1), SocketPoller(), secret=secret)
        assert source is not None
        seen = await measure(source, SECONDS)
    except RefusedCredentialsError as error:
        refused.add(login)
        remedy = (
            f"embereye credentials set {secret}" if secret else "set credentialsRef, and `embereye credentials set`"
        )
        return Finding(subject, FAIL, conceal(str(error), camera.source), remedy)
    except SourceError as error:
        place = declared.address.partition("://")[2].partition("/")[0]
        remedy = f"embereye camera probe {place}" if place else ""
        if str(error).startswith("credentialsRef"):
            remedy = f"embereye credentials set {secret}"
        return Finding(subject, FAIL, conceal(str(error), camera.source), remedy)
    size = f"{seen.size[0]}x{seen.size[1]}"
    text = f"{seen.codec} {size}, {seen.rate:.0f} pictures/s, first after {seen.first_seconds:.1f} s"
    if seen.codec != "JPEG" and not seen.key_seconds > 0 and seen.first_seconds > LONGEST_KEY_SECONDS:
        return Finding(subject, WARN, text, "set the camera's key-frame interval to one second")
    return Finding(subject, OK, text)


def check_passwords(fleets: Iterable[Fleet]) -> list[Finding]:
    """Warn of passwords in manifests."""
    why, _, remedy = exposed_passwords(cameras_of(fleets)).partition(": ")
    return [Finding("passwords", WARN, why, remedy)] if why else []
