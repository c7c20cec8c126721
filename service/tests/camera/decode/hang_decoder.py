"""A decoder whose answer takes too long: `python hang_decoder.py loops|waits|resumes`.

`loops`: it never answers and uses CPU time. `waits`: it never answers and uses none. `resumes`: it answers, but the
machine was suspended for a while. It prints its answer.
"""

import socket
import sys
import time

from embereye.camera.decode import process
from embereye.camera.decode.wire import MESSAGE_BYTES, SHARE_BYTES


def answer(*_: object) -> tuple[bytes, int]:
    """Answer an order of one byte, if at all."""
    until = time.monotonic() + (0.5 if CASE == "resumes" else 60.0)
    while time.monotonic() < until:
        if CASE != "loops":
            time.sleep(0.5)
    return b"answer", 1


CASE = sys.argv[1]
# Names of another module, as this module sees them.
process.FRAME_SECONDS = 0.2  # type: ignore[attr-defined]
if CASE == "waits":
    process.HANG_SECONDS = 0.05  # type: ignore[attr-defined]
process.Decoders._answer = answer  # type: ignore[assignment,method-assign]
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.send(b"o")
ours.shutdown(socket.SHUT_WR)
process.Decoders(theirs, memoryview(bytearray(SHARE_BYTES))).serve()
ours.recv(MESSAGE_BYTES)  # the ready message
print(ours.recv(MESSAGE_BYTES).decode())
