"""Checks of `embereye doctor`: notify.yaml is correct, and the services of its routes can be reached."""

import asyncio
import socket
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from embereye.process.lifecycle import UserError
from embereye_cli.setup.findings import FAIL, OK, WARN, Finding, Fleet

if TYPE_CHECKING:
    from embereye.addons.notify.options import Route

SECONDS = 5.0  # to connect to a service


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options for routes."""
    parser.add_argument("--notify", type=Path, default=None, metavar="FILE", help="notify.yaml with routes to people")
    parser.add_argument("--send", action="store_true", help="send a test message by each route")


async def check(arguments: Namespace, _: Iterable[Fleet]) -> list[Finding]:
    """Check the file, and each route of it."""
    if arguments.notify is None:
        return [Finding("routes", WARN, "an alarm notifies nobody", "write notify.yaml, and name it with --notify")]
    from embereye.addons.notify.hub import read

    try:
        read(arguments)
    except UserError as error:
        return [Finding("routes", FAIL, str(error))]
    from embereye.addons.notify.config import read_config

    routes = read_config(arguments.notify).routes.values()
    return await asyncio.gather(*(_check(route, send=arguments.send) for route in routes))


async def _check(route: "Route", *, send: bool) -> Finding:
    from embereye.addons.notify.channel import Channel
    from embereye.addons.notify.messages import Message

    subject = f"route {route.name}"
    if route.is_web_push:
        return Finding(subject, OK, "goes to browsers that subscribed in the console; not tried")
    remedy = f"its address in notify.yaml; then `embereye doctor --send` or `embereye notify test {route.name}`"
    if send:
        body = "embereye doctor tests this route. Nothing burns."
        refusal = await Channel(route, time.time).send(Message("EmberEye: test message", body, "info"))
        if refusal:
            return Finding(subject, FAIL, refusal.why, remedy)
        return Finding(subject, OK, "the service took a test message: look whether it arrived")
    try:
        async with asyncio.timeout(2 * SECONDS):
            place = await asyncio.to_thread(_connect, route)
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error).replace("the webhook's allow", "the route's allow")
        return Finding(subject, FAIL, f"cannot be reached: {why}", remedy)
    if not place:
        return Finding(subject, WARN, "not tried", f"embereye notify test {route.name}, once the hub runs")
    return Finding(subject, OK, f"{place} answers; nothing was sent")


def _connect(route: "Route") -> str:
    """Connect to the service of `route`; return its place, '' if Apprise does not say it."""
    from embereye.addons.notify.channel import attempting, plugin_of, url_of

    plugin = plugin_of(url_of(route), route)
    host, port = _place(plugin)
    if not host:
        return ""
    with attempting(route):
        socket.create_connection((host, port), SECONDS).close()
    return f"{host}:{port}"


def _place(plugin: Any) -> tuple[str, int]:
    """Host and port that `plugin` calls; ('', 0) if it does not say them."""
    if getattr(plugin, "smtp_host", ""):
        return str(plugin.smtp_host), int(plugin.port or 25)
    urls = [getattr(plugin, name) for name in dir(plugin) if name.endswith("url")]
    parsed = [urlsplit(url) for url in urls if isinstance(url, str)]
    cloud = next((parts for parts in parsed if parts.scheme in {"http", "https"} and parts.hostname), None)
    host = getattr(plugin, "host", "")
    if host and (getattr(plugin, "port", None) or not cloud):
        return str(host), int(plugin.port or (443 if plugin.secure else 80))
    if cloud and "{" not in str(cloud.hostname):
        return str(cloud.hostname), cloud.port or (443 if cloud.scheme == "https" else 80)
    return "", 0
