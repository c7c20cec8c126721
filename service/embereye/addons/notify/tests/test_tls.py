"""Services with a certificate of an authority of one's own."""

import os
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from harness.eventually import eventually
from harness.servers.certificates import SiteAuthority
from harness.stored import Stored

from embereye.addons.notify.mail import context_for
from embereye.process.addresses import free_ports

from .hub_of import options, route, running
from .servers import MailServer

LOOKUPS = {"socket.gethostbyname", "socket.gethostbyaddr"}
_looked_up: list[str] = []


def _note_lookup(event: str, _: object) -> None:
    if event in LOOKUPS and threading.current_thread().name == "notify-guard":
        _looked_up.append(event)


@pytest.mark.parametrize(("mode", "form"), [("starttls", "tls_context"), ("ssl", "ssl_context")])
async def test_mail_goes_only_to_a_server_that_the_authority_vouches_for(mode: str, form: str, tmp_path: Path) -> None:
    authority = SiteAuthority(tmp_path / "ca")
    folder = authority.issue("localhost", alternatives=["localhost"]).folder
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = MailServer()
    server.port = free_ports(1)[0]
    forms: dict[str, Any] = {form: context}
    controller = Controller(server, hostname="127.0.0.1", port=server.port, **forms)
    controller.start()
    url = f"mailtos://localhost:{server.port}?from=hub@example.com&to=guard@example.com&mode={mode}&format=text"
    try:
        trusting = route("trusting", url, ca_file=folder / "ca.crt")
        async with running(Stored(tmp_path), options(trusting, route("strange", url))) as site:
            site.ignite()
            await eventually(lambda: server.received)
            why = await eventually(lambda: site.notifier.outlets["strange"].failing.why)
            assert "certificate" in why.lower()
            await eventually(lambda: site.notifier.outlets["trusting"].sent == 1)
    finally:
        controller.stop()


async def test_a_mail_is_sent_without_looking_up_this_machine(stored: Stored, mail: MailServer) -> None:
    sys.addaudithook(_note_lookup)
    async with running(stored, options(route("guard", mail.url))) as site:
        _looked_up.clear()
        site.ignite()
        await eventually(lambda: mail.received)
        assert not _looked_up, "without DNS, each look-up takes seconds"


def test_the_settings_of_tls_are_made_once_for_each_content_of_a_file(tmp_path: Path) -> None:
    folder = SiteAuthority(tmp_path / "ca").issue("localhost").folder
    file = folder / "ca.crt"
    first = context_for(file, verify=True)
    assert context_for(file, verify=True) is first
    assert context_for(None, verify=True) is not first
    assert context_for(file, verify=False).verify_mode == ssl.CERT_NONE
    file.write_bytes(file.read_bytes())
    os.utime(file, ns=(1, 1))
    assert context_for(file, verify=True) is not first
