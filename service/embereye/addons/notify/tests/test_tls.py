"""Services with a certificate of an authority of one's own."""

import ssl
from pathlib import Path

from aiosmtpd.controller import Controller
from harness.eventually import eventually
from harness.servers.certificates import SiteAuthority
from harness.stored import Stored

from embereye.process.addresses import free_ports

from .hub_of import options, route, running
from .servers import MailServer


async def test_mail_goes_only_to_a_server_that_the_authority_vouches_for(tmp_path: Path) -> None:
    authority = SiteAuthority(tmp_path / "ca")
    folder = authority.issue("localhost", alternatives=["localhost"]).folder
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = MailServer()
    server.port = free_ports(1)[0]
    controller = Controller(server, hostname="127.0.0.1", port=server.port, tls_context=context)
    controller.start()
    url = f"mailtos://localhost:{server.port}?from=hub@example.com&to=guard@example.com&mode=starttls&format=text"
    try:
        trusting = route("trusting", url, ca_file=folder / "ca.crt")
        async with running(Stored(tmp_path), options(trusting, route("strange", url))) as site:
            site.ignite()
            await eventually(lambda: server.received)
            why = await eventually(lambda: site.notifier.find("strange").failing.why)
            assert "certificate" in why.lower()
            await eventually(lambda: site.notifier.find("trusting").sent == 1)
    finally:
        controller.stop()
