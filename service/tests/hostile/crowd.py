"""Open idle gRPC connections: `crowd.py PORT COUNT`, until killed. Prints a line to stderr when all were tried."""

import contextlib
import resource
import socket
import sys
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # a frame without settings


def main(port: int, count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            connections.append(socket.create_connection(("127.0.0.1", port), timeout=20))
            connections[-1].sendall(PREFACE + SETTINGS)
    print(f"connected {len(connections)}", file=sys.stderr, flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
