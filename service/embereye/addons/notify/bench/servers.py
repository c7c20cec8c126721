"""Services on this machine that note when each message arrived: SMTP, ntfy's form over HTTP, and Web Push."""

import asyncio
import base64
import contextlib
import email
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email import policy
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from embereye.process.lifecycle import UserError

HOST = "127.0.0.1"
PLACE = re.compile(r"[\w-]+/(device-\d+)")
EARLIER = " (earlier)"


@dataclass
class Service:
    """The messages of one route. They are read later, since reading delays what else is measured in this process."""

    contents: list[bytes | str] = field(default_factory=list)  # mails as bytes
    messages: int = 0
    stills: int = 0
    last: float = 0.0  # perf_counter seconds of the latest message
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, content: bytes | str, *, still: bool) -> None:
        """Note a message that has just arrived completely."""
        self.last = time.perf_counter()
        self.messages += 1
        self.stills += still
        self.contents.append(content)
        self.more.set()

    def zones(self) -> set[str]:
        """Read all messages: the zones that one of them names as news."""
        lines = [line for content in self.contents for line in _text_of(content).splitlines()]
        return {zone for line in lines if EARLIER not in line for zone in PLACE.findall(line)}


def _text_of(content: bytes | str) -> str:
    """The title and text of a message."""
    if isinstance(content, str):
        return content
    message = email.message_from_bytes(content, policy=policy.default)
    body: Any = message.get_body(("plain", "html"))
    return f"{message['subject']}\n{body.get_content()}"


@dataclass
class Services:
    """Running servers, with the books of each route by its name."""

    mail_port: int = 0
    http_port: int = 0
    routes: dict[str, Service] = field(default_factory=dict)

    def url(self, name: str, kind: str) -> str:
        """Begin the books of the route `name` and return its address for Apprise; `kind` is smtp, ntfy or push."""
        self.routes[name] = Service()
        if kind == "smtp":
            return (
                f"mailto://{HOST}:{self.mail_port}?from=hub@example.com&to={name}@example.com&mode=insecure&format=text"
            )
        return "webpush://" if kind == "push" else f"ntfy://{HOST}:{self.http_port}/{name}"

    def subscription(self, name: str) -> dict[str, Any]:
        """A browser's subscription to Web Push, for the route `name`."""
        key = ec.generate_private_key(ec.SECP256R1()).public_key()
        point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": _text(point), "auth": _text(os.urandom(16))}
        return {"endpoint": f"http://{HOST}:{self.http_port}/push/{name}", "keys": keys}

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        """Accept a message by SMTP."""
        name = envelope.rcpt_tos[0].partition("@")[0]
        self.routes[name].note(envelope.content, still=b"image/jpeg" in envelope.content)
        return "250 OK"

    async def handle_ntfy(self, request: web.Request) -> web.Response:
        """Accept a message in ntfy's form, without or with a still."""
        content = await request.read()
        document = await request.json() if request.content_type == "application/json" else request.query
        name = document.get("topic") or request.path.strip("/")
        still = b"\xff\xd8" in content[:2]
        self.routes[name].note(f"{document.get('title')}\n{document.get('message')}", still=still)
        return web.json_response({"id": "1"})

    async def handle_push(self, request: web.Request) -> web.Response:
        """Accept an encrypted message."""
        await request.read()
        self.routes[request.match_info["name"]].note("", still=False)
        return web.Response(status=201)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@contextlib.asynccontextmanager
async def running_services() -> AsyncIterator[Services]:
    """Run all servers on free ports. UserError if aiosmtpd is not installed."""
    try:
        from aiosmtpd.smtp import SMTP
    except ImportError as error:
        raise UserError("this benchmark needs an SMTP server: pip install aiosmtpd") from error
    services = Services()
    mail = await asyncio.get_running_loop().create_server(
        lambda: SMTP(services, hostname="localhost", data_size_limit=10**8), HOST, 0
    )
    services.mail_port = mail.sockets[0].getsockname()[1]
    app = web.Application(client_max_size=10**8)
    app.router.add_post("/push/{name}", services.handle_push)
    app.router.add_route("*", "/{tail:.*}", services.handle_ntfy)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    services.http_port = int(runner.addresses[0][1])
    try:
        yield services
    finally:
        mail.close()
        await runner.cleanup()
