"""How many messages the hub acknowledges a second, against pynetdicom's C-ECHO and pyzmq."""

import contextlib
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING

import zmq

from embereye.client.link import Link
from embereye.sim.own_hub import running_hub
from embereye.v1.echo_pb2 import EchoRequest
from embereye.wire.delimited import DelimitedReader, delimited
from embereye_bench.hub.lockstep import line_of, module
from embereye_bench.report import Result, Scale

if TYPE_CHECKING:
    from pynetdicom import AE

CALL = "embereye.v1.Echo/Echo"
WINDOW = 64  # messages under way for each client
CLIENTS = (1, 4, 16)
MESSAGE = EchoRequest(sequence=1 << 40, payload=bytes(150)).SerializeToString()  # 160 bytes


def _through_hub(address: str, token: str, clients: int, seconds: float) -> float:
    """Echoes a second of so many clients, all of this process."""
    message, count = delimited(MESSAGE), 0
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as ready:
        for _ in range(clients):
            link = stack.enter_context(Link(address, CALL, token))
            connection = link.detach()
            stack.callback(connection.close)
            ready.register(connection, selectors.EVENT_READ, DelimitedReader(1 << 16))
            connection.sendall(message * WINDOW)
        began = now = time.perf_counter()
        while now - began < seconds:
            for key, _ in ready.select():
                assert isinstance(key.fileobj, socket.socket)
                answered = len(key.data.receive(key.fileobj.recv(1 << 18)))
                count += answered
                key.fileobj.sendall(message * answered)
            now = time.perf_counter()
    return count / (now - began)


def _through_zmq(address: str, clients: int, seconds: float) -> float:
    """The same by pyzmq's DEALER sockets."""
    context, count, poller = zmq.Context(), 0, zmq.Poller()
    with contextlib.ExitStack() as stack:
        for _ in range(clients):
            connection = stack.enter_context(context.socket(zmq.DEALER))
            connection.linger = 0
            connection.set_hwm(0)
            connection.connect(address)
            poller.register(connection, zmq.POLLIN)
            for _ in range(WINDOW):
                connection.send(MESSAGE)
        began = now = time.perf_counter()
        while now - began < seconds:
            for connection, _ in poller.poll():
                with contextlib.suppress(zmq.Again):
                    for _ in range(WINDOW):
                        connection.recv(zmq.NOBLOCK)
                        connection.send(MESSAGE)
                        count += 1
            now = time.perf_counter()
    return count / (now - began)


def _dicom() -> "AE":
    """An application entity that can echo."""
    from pynetdicom import AE
    from pynetdicom.sop_class import Verification  # type: ignore[attr-defined]

    entity = AE()
    entity.add_requested_context(Verification)
    entity.add_supported_context(Verification)
    entity.maximum_associations = 64
    return entity


def _through_dicom(port: int, clients: int, seconds: float) -> float:
    """C-ECHOs a second: DICOM's clients wait for each answer, so each is a thread."""
    counts, until = [0] * clients, time.perf_counter() + seconds
    entity = _dicom()

    def run(number: int) -> None:
        association = entity.associate("127.0.0.1", port)
        if not association.is_established:
            raise RuntimeError("pynetdicom's server does not associate")
        while time.perf_counter() < until:
            if association.send_c_echo().Status != 0:
                raise RuntimeError("pynetdicom's server does not answer")
            counts[number] += 1
        association.release()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def echo(scale: Scale) -> Result:
    """Acknowledged echoes of 160 bytes by TCP, 64 under way, of 1, 4 and 16 clients. Baseline: pyzmq.

    Ten seconds each, in a quick run one; beside it DICOM's C-ECHO, which has none.
    """
    seconds = 10.0 if scale.seconds >= 3 else 1.0
    shares, found = list[tuple[float, float]](), list[str]()
    value = baseline = 0.0
    with running_hub() as hub, contextlib.ExitStack() as stack:
        peer = stack.enter_context(module("embereye_bench.hub.peers", "echo", "tcp://127.0.0.1:*"))
        address = line_of(peer)
        dicom = stack.enter_context(module("embereye_bench.hub.echo"))
        port = int(line_of(dicom))
        for clients in CLIENTS:
            ours = _through_hub(hub.tcp, hub.token, clients, seconds)
            zeromq = _through_zmq(address, clients, seconds)
            echoes = _through_dicom(port, clients, seconds)
            shares.append((ours / zeromq, ours / echoes))
            found.append(f"{clients}: {ours / 1e3:.0f}k, pyzmq {zeromq / 1e3:.0f}k, C-ECHO {echoes:.0f}")
            if shares[-1][0] == min(share for share, _ in shares):
                value, baseline = ours, zeromq
    least, least_dicom = min(share for share, _ in shares), min(share for _, share in shares)
    unit = f"/s, the least favourable; {'; '.join(found)}; ≥ {least_dicom:.0f} times C-ECHO"
    return Result("echo", value, unit, baseline, least, "≥ 1.0 pyzmq, ≥ 10 C-ECHO", least >= 1 and least_dicom >= 10)


if __name__ == "__main__":
    server = _dicom().start_server(("127.0.0.1", 0), block=False)
    assert server is not None
    print(server.server_address[1], flush=True)
    threading.Event().wait()
