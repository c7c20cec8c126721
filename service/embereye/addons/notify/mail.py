"""Connections to mail servers: without look-ups of this machine's name, with TLS settings that are made once.

Apprise makes a TLS context for each mail, which takes tens of milliseconds even where no TLS is used. smtplib asks DNS
for this machine's name, which takes seconds where DNS is gone. `Connection` replaces Apprise's class and does neither.
"""

import contextlib
import smtplib
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import apprise.plugins.email.base
from apprise.plugins.email.smtp import SMTP_EXCEPTIONS, AppriseSMTPController, SMTPSecureMode

from embereye.process.tls.trust import trusting


@lru_cache(maxsize=64)
def _context(authority: Path | None, changed_ns: int, *, verify: bool) -> ssl.SSLContext:
    """The settings of TLS; a file that has changed since `changed_ns` gets others."""
    context = trusting()
    if authority:
        context.load_verify_locations(str(authority))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def context_for(authority: Path | None, *, verify: bool) -> ssl.SSLContext:
    """Return the settings of TLS that trust the system's authorities and the one in the file `authority`.

    Raises OSError if the file cannot be read, or is no certificate.
    """
    if authority is None or not verify:
        return _context(None, 0, verify=verify)
    return _context(authority, authority.stat().st_mtime_ns, verify=True)


def _own_name(connected: socket.socket) -> str:
    """Name this machine for a server: by its host name, else by the address of the connection. Needs no DNS."""
    name = socket.gethostname()
    if "." in name:
        return name
    address = str(connected.getsockname()[0])
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


class Connection(AppriseSMTPController):
    """A connection to a mail server for one message."""

    authority: Callable[[], Path | None] = staticmethod(lambda: None)  # of the present attempt
    _socket: Any  # smtplib's client, which Apprise leaves without a type

    def __enter__(self) -> "Connection":
        """Connect and log in; raises what smtplib raises."""
        try:
            self._connect()
            if self.user and self.password:
                self._socket.login(self.user, self.password)
        except SMTP_EXCEPTIONS:
            if self._socket is not None:
                with contextlib.suppress(*SMTP_EXCEPTIONS):
                    self._socket.quit()
                self._socket = None
            raise
        return self

    def _connect(self) -> None:
        place, timeout = (self.host, self.port, "localhost"), self.socket_connect_timeout
        if self.secure_mode == SMTPSecureMode.SSL:
            self._socket = smtplib.SMTP_SSL(*place, timeout=timeout, context=self._tls())
        else:
            self._socket = smtplib.SMTP(*place, timeout=timeout)
        self._socket.local_hostname = _own_name(self._socket.sock)
        if self.secure_mode == SMTPSecureMode.STARTTLS:
            self._socket.starttls(context=self._tls())

    def _tls(self) -> ssl.SSLContext:
        return context_for(self.authority(), verify=self.verify_certificate)


def install(authority: Callable[[], Path | None]) -> None:
    """Let Apprise's mails use `Connection`; `authority` returns the file to trust in the present attempt."""
    Connection.authority = staticmethod(authority)
    module: Any = apprise.plugins.email.base  # it does not export the name
    module.AppriseSMTPController = Connection
