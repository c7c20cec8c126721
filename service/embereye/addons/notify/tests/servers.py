"""Servers to which messages go: a real SMTP server, and one that answers like services over HTTP."""

import asyncio
import contextlib
import email
import email.policy
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from aiohttp import web
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from embereye.process.addresses import free_ports


class MailServer:
    """The messages of an SMTP server, which answers with the next of `answers`, or accepts.

    While `is_silent`, it takes messages without an answer and drops them; `unanswered` counts them.
    """

    def __init__(self) -> None:
        self.received: list[EmailMessage] = []
        self.answers: list[str] = []
        self.port = 0
        self.is_silent = False
        self.unanswered = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answers:
            return self.answers.pop(0)
        if self.is_silent:
            self.unanswered += 1
            while self.is_silent:
                await asyncio.sleep(0.01)
            return "451 dropped"
        content = envelope.content
        assert isinstance(content, bytes)
        message = email.message_from_bytes(content, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        self.received.append(message)
        return "250 OK"

    @property
    def url(self) -> str:
        """The address for Apprise."""
        return f"mailto://127.0.0.1:{self.port}?from=hub@example.com&to=guard@example.com&mode=insecure&format=text"

    def subjects(self) -> list[str]:
        return [str(message["subject"]) for message in self.received]


@contextlib.contextmanager
def mail_server(port: int = 0) -> Iterator[MailServer]:
    server = MailServer()
    server.port = port or free_ports(1)[0]
    controller = Controller(server, hostname="127.0.0.1", port=server.port)
    controller.start()
    try:
        yield server
    finally:
        controller.stop()


def text_of(message: EmailMessage) -> str:
    """The message's text."""
    body = message.get_body(("plain", "html"))
    assert isinstance(body, EmailMessage)
    return str(body.get_content())


@dataclass
class HttpService:
    """A service that answers with the next of `answers` (status and headers), or with 200."""

    port: int = 0
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, Any], Any]] = field(default_factory=list)  # path, query or JSON, body
    text: str = '{"id": "1"}'  # of its answers
    headers: list[dict[str, str]] = field(default_factory=list)  # of each request
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        document = json.loads(body) if request.content_type == "application/json" else dict(request.query)
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        self.headers.append(dict(request.headers))
        self.requests.append((request.path, document, body))
        await self.may_answer.wait()
        return web.Response(text=self.text, content_type="application/json", status=status, headers=headers)

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator["HttpService"]:
        service = cls()
        app = web.Application(client_max_size=10**8)
        app.router.add_route("*", "/{tail:.*}", service.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        service.port = int(runner.addresses[0][1])
        try:
            yield service
        finally:
            await runner.cleanup()

    @property
    def url(self) -> str:
        """The address for Apprise: ntfy's form."""
        return f"ntfy://127.0.0.1:{self.port}/alarms"

    def titles(self) -> list[str]:
        return [document.get("title", "") for _, document, _ in self.requests]
