"""Run the baselines of control and storing in separate processes: pyzmq with the same messages, and floors.

A benchmark starts one of them as a program, with its name as the first argument, and reads its first line: an address,
a port or "ready". Each does the same work as the hub or less. The benchmark ends the process.
"""

import hashlib
import itertools
import os
import queue
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zmq

from embereye.v1.alarms_pb2 import ZoneState
from embereye.v1.control_pb2 import ControlRequest, ControlResponse, State


def answer_commands(address: str, outputs: int, sensors: int) -> None:
    """Answer each command with a state, as the hub does: parse it, apply it, write the state. Runs until killed."""
    endpoint = zmq.Context().socket(zmq.REP)
    endpoint.bind(address)
    print(endpoint.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    state = State(
        tick=100_000,
        time_ns=1 << 60,
        worst=ZoneState.ZONE_STATE_NORMAL,
        measured=[0.5] * outputs,
        sensors=[0.5] * sensors,
    )
    response = ControlResponse(state=state)
    while True:
        request = ControlRequest.FromString(endpoint.recv())
        response.state.sequence = request.command.sequence
        endpoint.send(response.SerializeToString())


def echo(address: str) -> None:
    """Send every message back to its sender. Runs until killed."""
    endpoint = zmq.Context().socket(zmq.ROUTER)
    endpoint.set_hwm(0)
    endpoint.bind(address)
    print(endpoint.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    receive, send = endpoint.recv, endpoint.send
    while True:
        # Two parts, identity and message. Copying short ones is faster than sharing them.
        identity, message = receive(), receive()
        send(identity, zmq.SNDMORE)
        send(message)


def relay(path: str) -> None:
    """Relay between the first connection, a controller, and the second, a device, until either ends."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("ready", flush=True)
        controller, _ = listening.accept()
        device, _ = listening.accept()
    with controller, device:
        while state := device.recv(4_096):
            controller.sendall(state)
            device.sendall(controller.recv(4_096))


def store_stills(folder: Path) -> None:
    """Receive stills of the size announced by each connection; hash, write and sync each, then answer with a byte.

    Eight at a time, like the hub, but without names, descriptions and synced folders.
    """
    names, threads = itertools.count(), ThreadPoolExecutor(8)

    def serve(connection: socket.socket) -> None:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        free = queue.SimpleQueue[memoryview]()
        for _ in range(8):
            free.put(memoryview(bytearray(size)))

        def store_one(still: memoryview) -> None:
            hashlib.sha256(still).digest()
            descriptor = os.open(folder / str(next(names)), os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, still)
            os.fsync(descriptor)
            os.close(descriptor)
            free.put(still)
            connection.sendall(b"1")

        with connection:
            while connection.recv_into(still := free.get(), 0, socket.MSG_WAITALL) == size:
                threads.submit(store_one, still)

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    if sys.argv[1] == "commands":
        answer_commands(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "relay":
        relay(sys.argv[2])
    elif sys.argv[1] == "store":
        store_stills(Path(sys.argv[2]))
    else:
        echo(sys.argv[2])
