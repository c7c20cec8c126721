"""Associations over TLS: a client notices that its hub is gone, as it does without TLS."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.servers.certificates import SiteAuthority

from embereye.addons.control.link import Link, LinkError, Wait
from embereye.process.tls.client import ClientTls
from embereye.v1.association_pb2 import Associated
from embereye.v1.control_pb2 import ControlResponse
from embereye.wire.delimited import delimited

HOST = "127.0.0.1"
TIMEOUT = 0.2  # seconds


@contextmanager
def silent_hub(folder: Path) -> Iterator[tuple[str, ClientTls, threading.Event]]:
    """A hub that accepts an association, but then neither reads nor sends until the event is set."""
    shown, end = SiteAuthority(folder).issue("hub", alternatives=[HOST]), threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.folder / "tls.crt", shown.folder / "tls.key")
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.sendall(delimited(Associated(name="valve").SerializeToString()))
                end.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{HOST}:{listener.getsockname()[1]}", ClientTls(shown.ca), end
        finally:
            end.set()
            thread.join()


def receive(link: Link) -> None:
    link.receive(ControlResponse)


def send(link: Link) -> None:
    while True:
        link.send_bytes(bytes(1 << 20))


@pytest.mark.parametrize("wait", list(Wait))
@pytest.mark.parametrize(
    ("use", "why"), [(receive, "has sent nothing for 0.2 s"), (send, "has read nothing for 0.2 s")]
)
async def test_a_hub_that_falls_silent_is_noticed(
    tmp_path: Path, use: Callable[[Link], None], why: str, wait: Wait
) -> None:
    with (
        silent_hub(tmp_path) as (address, tls, end),
        await asyncio.to_thread(lambda: Link(address, "x/Y", "", tls=tls, wait=wait, timeout=TIMEOUT)) as link,
    ):
        waiting = asyncio.create_task(asyncio.to_thread(use, link))
        done, _ = await asyncio.wait([waiting], timeout=20)
        end.set()
        with pytest.raises(LinkError, match=why):
            await waiting
        assert done


def test_unreadable_tls_files_are_reported_as_an_unreachable_hub(tmp_path: Path) -> None:
    tls = ClientTls(tmp_path / "none")
    with (
        socket.create_server((HOST, 0)) as listener,
        pytest.raises(LinkError, match=r"cannot be reached: TLS with .*none"),
    ):
        Link(f"{HOST}:{listener.getsockname()[1]}", "x/Y", "", tls=tls)
