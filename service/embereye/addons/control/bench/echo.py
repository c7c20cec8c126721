"""Measure the messages per second that the hub acknowledges, against pynetdicom's C-ECHO and pyzmq.

The clients of one measurement run in this process, and each has WINDOW pending messages, so that latency does not limit
the rate; DICOM's have one. The hub and both peers run in separate processes. They are measured in alternating rounds;
the number of clients with the worst ratio counts.
"""

import contextlib
import selectors
import socket
import tempfile
import time

import zmq

from embereye.addons.control.link import Link
from embereye.addons.control.own_hub import running_hub
from embereye.v1.echo_pb2 import EchoRequest
from embereye.wire.delimited import DelimitedReader, delimited
from embereye_bench.hub.companions import line_of, module, rate_of
from embereye_bench.report import Result, Scale, median

CALL = "embereye.v1.Echo/Echo"
WINDOW = 64  # pending messages of each client
CLIENTS = (1, 4, 16)
MESSAGE = EchoRequest(sequence=1 << 40, payload=bytes(150)).SerializeToString()  # 160 bytes


def _through_hub(address: str, token: str, clients: int, seconds: float) -> float:
    """Echoes per second of `clients` clients in this process, through the hub."""
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
    """Echoes per second of `clients` DEALER sockets, through pyzmq."""
    count, poller = 0, zmq.Poller()
    with zmq.Context() as context, contextlib.ExitStack() as stack:
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


def echo(scale: Scale) -> Result:
    """Measure acknowledged echoes of 160 bytes by TCP, 64 pending, of 1, 4 and 16 clients. Baseline: pyzmq.

    Ten seconds each, one in a quick run, in alternating rounds. DICOM's C-ECHO, with one pending echo, is measured too.
    """
    from embereye.addons.control.bench import dicom

    seconds = (10.0 if scale.seconds >= 3 else 1.0) / scale.rounds
    by_clients: dict[int, list[tuple[float, float, float]]] = {clients: [] for clients in CLIENTS}
    with running_hub() as hub, tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.ExitStack() as stack:
        peer = line_of(stack.enter_context(module("embereye.addons.control.bench.peers", "echo", "tcp://127.0.0.1:*")))
        port = int(line_of(stack.enter_context(module("embereye.addons.control.bench.dicom", folder))))
        for _ in range(scale.rounds):
            for clients, rounds in by_clients.items():
                ours = _through_hub(hub.tcp, hub.token, clients, seconds)
                zeromq = _through_zmq(peer, clients, seconds)
                echoes = rate_of(clients, seconds, lambda stack, _: dicom.echo_step(stack, port))
                rounds.append((ours, zeromq, echoes))
    value = baseline = 0.0
    least = least_dicom = float("inf")
    reports = list[str]()
    for clients, rounds in by_clients.items():
        ours, zeromq, echoes = (median([measured[place] for measured in rounds]) for place in range(3))
        ratio = median([hub_rate / zmq_rate for hub_rate, zmq_rate, _ in rounds])
        least_dicom = min(least_dicom, median([hub_rate / dicom_rate for hub_rate, _, dicom_rate in rounds]))
        reports.append(f"{clients}: {ours / 1e3:.0f}k, pyzmq {zeromq / 1e3:.0f}k ({ratio:.2f}), C-ECHO {echoes:.0f}")
        if ratio < least:
            value, baseline, least = ours, zeromq, ratio
    unit = f"/s, the least favourable; {'; '.join(reports)}; ≥ {least_dicom:.0f} times C-ECHO"
    return Result("echo", value, unit, baseline, least, "≥ 1.0 pyzmq, ≥ 10 C-ECHO", least >= 1 and least_dicom >= 10)
