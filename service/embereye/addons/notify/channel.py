"""Sends messages by Apprise, each in a thread that nothing waits for without a limit.

Apprise's calls block, and return no reason of a failure. `send` makes one attempt in a daemon thread and finds the
reason in that thread:

- An audit hook refuses connections and datagrams to addresses that webhooks may not call either, from any library. It
  holds in the threads that an attempt starts, too.
- The session of requests adds buttons to what it sends.
- The HTTP adapter of requests notes status and Retry-After of answers, and trusts the route's authority.
- Mails go by `mail.Connection`, which trusts the route's authority.
- The last warning in Apprise's log becomes the reason. It is never logged itself: it may contain secrets.
"""

import asyncio
import contextlib
import logging
import re
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apprise
import paho.mqtt.client
import requests
from apprise.attachment.memory import AttachMemory

from embereye.addons.notify import mail
from embereye.addons.notify.buttons import add_buttons, has_buttons
from embereye.addons.notify.messages import Message
from embereye.addons.notify.options import Calendar, NotifyOptions, Route
from embereye.addons.notify.readers import Reader
from embereye.hub.webhooks.guard import RefusedAddressError, check_address
from embereye.hub.webhooks.sender import MAX_WAIT_SECONDS, Refusal
from embereye.process.fields import Network
from embereye.process.http.retry_after import retry_seconds
from embereye.process.lifecycle import UserError

MAX_ABANDONED = 2  # threads of one route that did not end in time and may still send
SOCKET_ERROR = "Socket Exception: "  # begins Apprise's line with the system's reason
ERRNO = re.compile(r"\[Errno -?\d+\] ")
PART_SECONDS = 0.2  # at most, between two parts of a message that is too long for its service
MAX_SMS = 1_600  # characters that Twilio sends as the parts of one message
MIN_SECRET = 4  # characters of a part of an address that is hidden in reasons
# Messages have our name and, so that no service loads a picture from elsewhere, no icon.
ASSET = apprise.AppriseAsset(app_id="EmberEye", app_desc="EmberEye", app_url="", image_url_mask="", image_url_logo="")
PLAINER = frozenset({400, 413, 415, 422})  # answers after which a message is sent again without buttons, then its still

GUARDED = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})  # audit events: socket, address


@dataclass
class Call:
    """The events of one attempt."""

    allow: tuple[Network, ...]
    ca_file: Path | None
    decorate: Callable[[str, MutableMapping[str, Any]], None] | None = (
        None  # changes a request's options by its address
    )
    refused: str = ""  # an address that may not be called
    error: str = ""  # of the connection
    status: int = 0  # of the latest HTTP answer
    retry_after: str = ""
    warning: str = ""


_present = threading.local()  # .call: the attempt that the thread makes


def _call() -> Call | None:
    return getattr(_present, "call", None)


@contextlib.contextmanager
def attempting(allowed: Route | Calendar) -> Iterator[Call]:
    """Observe what this thread calls, with the addresses and authorities that `allowed` permits."""
    _present.call = Call(allowed.allow, allowed.ca_file)
    try:
        yield _present.call
    finally:
        _present.call = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse connections and datagrams of an attempt to addresses that are not allowed."""
    if event not in GUARDED or (call := _call()) is None:
        return
    address = arguments[1]
    if address is None:
        return  # a datagram goes where its socket is connected
    try:
        _check(arguments[0].family, address, call)
    except RefusedAddressError as error:
        call.refused = str(error).replace("the webhook's allow", "the route's allow")
        raise


def _check(family: int, address: tuple[Any, ...], call: Call) -> None:
    if family not in {socket.AF_INET, socket.AF_INET6}:
        raise RefusedAddressError("only Internet addresses may be called")
    for *_, resolved in socket.getaddrinfo(address[0], None, family):
        check_address(str(resolved[0]), call.allow)


def _starting(plain: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def start(self: threading.Thread) -> None:
        """Start the thread; one that an attempt starts belongs to the attempt."""
        if call := _call():
            run = self.run

            def attempt() -> None:
                _present.call = call
                run()

            self.run = attempt  # type: ignore[method-assign]
        plain(self)

    return start


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets for MQTT's client, which would connect them by an address of this machine."""
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    return pair


def _observe(plain: Callable[..., requests.Response]) -> Callable[..., requests.Response]:
    def send(self: requests.adapters.HTTPAdapter, request: Any, *rest: Any, **options: Any) -> requests.Response:
        call = _call()
        if call and call.ca_file and options.get("verify"):
            options["verify"] = str(call.ca_file)
        try:
            response = plain(self, request, *rest, **options)
        except requests.RequestException as error:
            if call:
                call.error = _plain_error(error)
            raise
        if call:
            call.status, call.retry_after = response.status_code, response.headers.get("Retry-After", "")
        return response

    return send


def _decorating(plain: Callable[..., requests.Response]) -> Callable[..., requests.Response]:
    def request(self: requests.Session, method: str, url: str, **options: Any) -> requests.Response:
        if (call := _call()) and call.decorate:
            call.decorate(url, options)
        return plain(self, method, url, **options)

    return request


def _plain_error(error: BaseException) -> str:
    """The system's reason at the end of a chain of errors."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__


class _Reasons(logging.Handler):
    """Keeps the reasons of each attempt's failure."""

    def emit(self, record: logging.LogRecord) -> None:
        if (call := _call()) is None:
            return
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            call.warning = text
        elif text.startswith(SOCKET_ERROR):
            call.error = call.error or ERRNO.sub("", text.removeprefix(SOCKET_ERROR))


_installed = threading.Event()


def install() -> None:
    """Observe attempts from now on; other threads are not affected."""
    if _installed.is_set():
        return
    _installed.set()
    sys.addaudithook(_audit)
    requests.Session.request = _decorating(requests.Session.request)  # type: ignore[method-assign]
    requests.adapters.HTTPAdapter.send = _observe(requests.adapters.HTTPAdapter.send)  # type: ignore[method-assign]
    threading.Thread.start = _starting(threading.Thread.start)  # type: ignore[method-assign,assignment]
    paho.mqtt.client._socketpair_compat = _socket_pair
    mail.install(lambda: call.ca_file if (call := _call()) else None)
    log = logging.getLogger("apprise")
    log.propagate = False  # its messages may contain secrets
    log.setLevel(logging.DEBUG)
    log.addHandler(_Reasons())


def secrets_in(url: str) -> list[str]:
    """The parts of an address that must not be shown, the longest first."""
    parts = urlsplit(url)
    pieces = {parts.username or "", parts.password or "", *parts.path.split("/"), url}
    pieces |= {value for pair in parts.query.split("&") for value in [pair.partition("=")[2]]}
    if not re.search(r"[.:]", parts.netloc.rpartition("@")[2]):
        pieces.add(parts.netloc)  # a token, where services have no host
    pieces |= {unquote(piece) for piece in pieces}
    return sorted((piece for piece in pieces if len(piece) >= MIN_SECRET), key=len, reverse=True)


def _hidden(text: str, url: str) -> str:
    for secret in secrets_in(url):
        text = text.replace(secret, "…")
    return text


class Channel:
    """Sends the messages of one route, one at a time."""

    def __init__(self, route: Route, clock: Callable[[], float]) -> None:
        """`clock` returns the Unix time, for dates in Retry-After."""
        install()
        self._route = route
        self._clock = clock
        self._abandoned: list[threading.Thread] = []

    def readers(self) -> Collection[Reader]:
        """The limits of those who get a version of each message; others get all of it."""
        return ()

    async def send(self, message: Message) -> Refusal | None:
        """Make one attempt; None if the service accepted the message."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= MAX_ABANDONED:
            return Refusal("earlier attempts have not ended yet")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Refusal | None] = loop.create_future()

        def finish(refusal: Refusal | None) -> None:
            if not answer.done():
                answer.set_result(refusal)

        def attempt() -> None:
            refusal = self._attempt(message)
            with contextlib.suppress(RuntimeError):  # the hub has stopped
                loop.call_soon_threadsafe(finish, refusal)

        # A daemon: a service that never answers does not keep the hub from stopping.
        thread = threading.Thread(target=attempt, name=f"notify-{self._route.name}", daemon=True)
        thread.start()
        try:
            async with asyncio.timeout(self._route.timeout):
                return await answer
        except TimeoutError:
            self._abandoned.append(thread)
            return Refusal(f"no answer within {self._route.timeout:g} s")

    def _attempt(self, message: Message) -> Refusal | None:
        try:
            url = url_of(self._route)
        except ValueError as error:
            return Refusal(str(error))
        refusal, status = self._notify(url, message, decorated=True)
        # An alarm without buttons or its picture is better than no alarm.
        if refusal and status in PLAINER and message.link and has_buttons(url.partition("://")[0].lower()):
            refusal, status = self._notify(url, message)
        if refusal and status in PLAINER and message.still:
            refusal, _ = self._notify(url, replace(message, still=b""))
        return refusal

    def _notify(self, url: str, message: Message, *, decorated: bool = False) -> tuple[Refusal | None, int]:
        with attempting(self._route) as call:
            if decorated:
                call.decorate = partial(add_buttons, url.partition("://")[0].lower(), message)
            return self._call_apprise(url, message, call), call.status

    def _call_apprise(self, url: str, message: Message, call: Call) -> Refusal | None:
        try:
            plugin = plugin_of(url, self._route)
            attach = None
            if message.still and plugin.attachment_support:
                make: Any = AttachMemory  # untyped
                still = make(content=message.still, name="still.jpg", mimetype="image/jpeg")
                attach = apprise.AppriseAttachment()
                attach.add(still)
            is_call = getattr(plugin, "method", "") == "call"  # a voice, which would read out the links
            accepted = plugin.notify(
                body=message.body if is_call else message.text,
                title=message.title,
                notify_type=apprise.NotifyType(message.kind),
                attach=attach,
            )
        except ValueError as error:
            return Refusal(str(error))
        except Exception as error:
            call.warning = call.warning or f"{type(error).__name__}: {_plain_error(error)}"
            accepted = False
        return None if accepted else failure_of(call, url, self._clock())


def failure_of(call: Call, url: str, now: float) -> Refusal:
    """Say why an attempt at `url` failed, without its secrets; `now` is the Unix time."""
    wait = min(retry_seconds(call.retry_after, now), MAX_WAIT_SECONDS)
    return Refusal(_hidden(_reason(call), url), wait=wait)


def _reason(call: Call) -> str:
    if call.refused:
        return call.refused
    if call.error:
        return f"it cannot be reached: {call.error}"
    if call.status >= 300:
        return f"it answers {call.status}"
    return call.warning or "the service did not accept it"


def url_of(route: Route) -> str:
    """Read a route's address, from its file if it has a file; ValueError, without the address."""
    from embereye.addons.notify.config import check_secret_url

    file = route.url_file
    if file is None:
        return route.url
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"urlFile {file} cannot be read: {getattr(error, 'strerror', '') or error}") from error
    if not text or not text.isprintable():
        raise ValueError(f"urlFile {file} is empty, or has more than one line")
    try:
        check_secret_url(text)
    except ValueError as error:
        raise ValueError(f"urlFile {file}: {error}") from error
    return text


def plugin_of(url: str, route: Route) -> Any:
    """Make Apprise's object for one message. ValueError, without the address."""
    plugin = apprise.Apprise.instantiate(url, asset=ASSET, suppress_exceptions=True)
    if plugin is None:
        scheme = url.partition("://")[0]
        raise ValueError(f"its {scheme}:// address is not one that Apprise can use. Check it against Apprise's page.")
    plugin.socket_connect_timeout = plugin.socket_read_timeout = max(1.0, route.timeout / 2)
    plugin.overflow_mode = apprise.OverflowMode.SPLIT
    # By default Apprise waits 5.5 s between the parts of a long message: three parts would not be sent in time.
    plugin.request_rate_per_sec = min(plugin.request_rate_per_sec, PART_SECONDS)
    if hasattr(plugin, "body_sms_maxlen"):
        plugin.body_sms_maxlen = MAX_SMS  # Apprise would split a link
    return plugin


@dataclass(frozen=True)
class Phones:
    """The account of a route by Twilio."""

    token: str  # signs what Twilio hands over
    numbers: frozenset[str]  # that get the messages


def phones_of(route: Route) -> Phones | None:
    """The account and the numbers of a route; None if it is not by Twilio, or its file cannot be read."""
    with contextlib.suppress(ValueError):
        plugin = plugin_of(url_of(route), route)
        if plugin.service_name == "Twilio":
            return Phones(plugin.auth_token, frozenset(number for _, number in plugin.targets))
    return None


def service_of(route: Route) -> str:
    """The name of a route's service, such as ntfy; '' if its file cannot be read."""
    if route.is_web_push:
        return "Web Push"
    with contextlib.suppress(ValueError):
        return str(plugin_of(url_of(route), route).service_name)
    return ""


def check_routes(options: NotifyOptions) -> None:
    """Check that Apprise can use every address; UserError names the route, never the address."""
    install()  # or Apprise would log the address
    for route in options.routes.values():
        if route.is_web_push:
            continue
        try:
            plugin_of(url_of(route), route)
        except ValueError as error:
            if route.url_file and not route.url_file.exists():
                continue  # the Secret may be created later; the route fails until then, and says so
            raise UserError(f"--notify: routes: {route.name}: {error}") from error
