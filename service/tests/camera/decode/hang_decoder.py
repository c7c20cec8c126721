"""A decoder whose answer takes longer than it may: `python hang_decoder.py loops|waits|stands`.

`loops`: it never answers, and takes processor time; `waits`: neither; `stands`: it answers, after the machine stood
still for a while. It prints what it answered.
"""

import socket
import sys
import time

from embereye.camera.decode import process
from embereye.camera.decode.exchange import MESSAGE_BYTES, SHARE_BYTES


def answer(*_: object) -> tuple[bytes, int]:
    """What there is to say of an order of one byte, if anything is."""
    until = time.monotonic() + (0.5 if CASE == "stands" else 60.0)
    while time.monotonic() < until:
        if CASE != "loops":
            time.sleep(0.5)
    return b"answer", 1


CASE = sys.argv[1]
# Names of another module, as this one sees them.
process.FRAME_SECONDS = 0.2  # type: ignore[attr-defined]
if CASE == "waits":
    process.HANG_SECONDS = 0.05  # type: ignore[attr-defined]
process.Decoders._answer = answer  # type: ignore[assignment,method-assign]
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.send(b"o")
ours.shutdown(socket.SHUT_WR)
process.Decoders(theirs, memoryview(bytearray(SHARE_BYTES))).serve()
ours.recv(MESSAGE_BYTES)  # that it is ready
print(ours.recv(MESSAGE_BYTES).decode())
