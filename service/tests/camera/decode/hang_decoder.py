"""A decoder that hangs on its first frame."""

import socket
import time

from embereye.camera.decode import process
from embereye.camera.decode.exchange import SHARE_BYTES

process.HANG_SECONDS = 0.05  # type: ignore[attr-defined] # of another module, as this one sees it
process.Decoders._answer = lambda *_: time.sleep(60)  # type: ignore[assignment,method-assign] # it never answers
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.send(b"order")
process.Decoders(theirs, memoryview(bytearray(SHARE_BYTES))).serve()
