"""Decoder process: turns compressed frames into small images, and sometimes into a still for people.

Decoding takes most of a camera shard's time and passes hostile bytes to a large C library, so it has separate
processes. They do not wait for the shard's interpreter, and a process that crashes or hangs on a frame affects nothing
else. A parent that has loaded only OpenCV forks them, so another decoder costs a few megabytes and milliseconds.
"""

import contextlib
import gc
import mmap
import os
import signal
import socket
import sys
import time

import cv2
import numpy as np

from embereye.camera.decode.exchange import (
    AT_NONE,
    BOX,
    DECODED,
    DELAYED,
    DETAIL_BYTES,
    ENCODINGS,
    FAILED,
    FORGET,
    FRAME_BYTES,
    FRAME_SECONDS,
    HANG_SECONDS,
    IMAGE_BYTES,
    LOGIT,
    MARK,
    MESSAGE_BYTES,
    ORDER,
    PICTURE_BYTES,
    READY,
    REASON_BYTES,
    REPLY,
    SHARE_BYTES,
    SLOT_BYTES,
    TRUNCATED,
    UNIT,
    UNIT_SECONDS,
    image_in,
)
from embereye.camera.decode.image import (
    STILL_BYTES,
    Decoded,
    DecodeOrder,
    TruncatedError,
    UndecodableError,
    add_logits,
    decode,
    decode_frame,
)
from embereye.camera.decode.shipped import load_network
from embereye.camera.decode.video import NoPictureError, VideoDecoder
from embereye.detect.vision.networks.appearance import AppearanceNetwork
from embereye.process.heap import COLLECT_SECONDS, keep_freed_memory

REPLY_SECONDS = 0.002  # longest delay of a reply to join the next ones: one wake-up per reply would cost the shard more


class Decoders:
    """The loop of one decoder process: answers orders and has one context per video."""

    def __init__(self, orders: socket.socket, memory: memoryview, network: AppearanceNetwork | None = None) -> None:
        self._orders = orders
        self._network = network
        self._memory = memory
        self._streams: dict[int, VideoDecoder] = {}

    def serve(self) -> None:
        """Decode frames as ordered until the other end of the socket is closed."""
        memory, orders, collected = self._memory, self._orders, time.monotonic()
        with contextlib.suppress(ConnectionError):
            orders.send(READY)
            while message := orders.recv(MESSAGE_BYTES):
                replies, since, at = b"", time.monotonic(), 0
                while at < len(message):
                    # Both alarms end this process: nothing else can stop code inside a C library.
                    memory[MARK] = message[at]
                    signal.setitimer(signal.ITIMER_PROF, FRAME_SECONDS)
                    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
                    reply, at = self._answer(message, at)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    replies += reply
                    if at < len(message) and time.monotonic() - since > REPLY_SECONDS:
                        orders.send(replies)
                        replies, since = b"", time.monotonic()
                memory[MARK] = AT_NONE
                if replies:
                    orders.send(replies)
                if since - collected > COLLECT_SECONDS:
                    gc.collect()  # CPython retains up to 2,000 freed tuples of each length; this releases them
                    collected = since

    def _answer(self, message: bytes, at: int) -> tuple[bytes, int]:
        """Return the reply to the order that begins at byte `at`, and the next order's position."""
        (slot, scale, count, still_wanted, look_wanted, close, size, width, height,
         encoding, stream, units, side, fresh, smoothed, image_wanted,
         detail_wanted) = ORDER.unpack_from(message, at)  # fmt: skip
        at += ORDER.size
        if slot == FORGET:
            self._streams.pop(stream, None)
            return b"", at
        boxes = [BOX.unpack_from(message, at + number * BOX.size) for number in range(count + close + detail_wanted)]
        at += len(boxes) * BOX.size
        detail = boxes.pop() if detail_wanted else None
        memory, began = self._memory, time.monotonic()
        begin, behind = slot * SLOT_BYTES, at + units * UNIT.size
        close_ups = boxes[count:] if look_wanted else None
        still = boxes[:count] if still_wanted else None
        order = DecodeOrder(scale, still, side, smoothed, close_ups, detail, image_wanted)
        try:
            if encoding:
                coded = [UNIT.unpack_from(message, at + number * UNIT.size) for number in range(units)]
                decoder = self._decoder_of(stream, ENCODINGS[encoding], fresh=fresh, smoothed=smoothed)
                decoded = self._decode_video(decoder, order, stream, begin, coded)
            else:
                place = begin + FRAME_BYTES
                room = memory[place : place + IMAGE_BYTES - STILL_BYTES - PICTURE_BYTES - DETAIL_BYTES]
                decoded = decode_frame(order, memory[begin : begin + size], width, height, room)
        except NoPictureError:
            return REPLY.pack(slot, DELAYED, 0, 0, 0, began, time.monotonic(), 0.0, 0, 0, 0, 0, 0), behind
        except UndecodableError as error:
            why = str(error).encode()[:REASON_BYTES]
            outcome = TRUNCATED if isinstance(error, TruncatedError) else FAILED
            return REPLY.pack(slot, outcome, 0, 0, 0, began, time.monotonic(), 0.0, len(why), 0, 0, 0, 0) + why, behind
        return self._write(slot, add_logits(decoded, order, self._network), began), behind

    def _decoder_of(self, stream: int, encoding: str, *, fresh: bool, smoothed: bool) -> VideoDecoder:
        """The context of `stream`. Another encoding, or another smoothing at a key frame (`fresh`), creates one."""
        known = self._streams.get(stream)
        if known is None or known.encoding != encoding or (fresh and known.smoothed != smoothed):
            known = self._streams[stream] = VideoDecoder(encoding, smoothed=smoothed, picture_bytes=PICTURE_BYTES)
        return known

    def _decode_video(
        self, decoder: VideoDecoder, order: DecodeOrder, stream: int, begin: int, coded: list[tuple[int, int]]
    ) -> Decoded:
        units = []
        for size, number in coded:
            units.append((self._memory[begin : begin + size], number))
            begin += size
        signal.setitimer(signal.ITIMER_PROF, UNIT_SECONDS * (1 + len(units) / 8))
        try:
            return decoder.decode(order, units)
        except UndecodableError:
            del self._streams[stream]  # the next key frame gets a decoder without the damaged state
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, FRAME_SECONDS)

    def _write(self, slot: int, decoded: Decoded, began: float) -> bytes:
        """Copy the result into `slot` and return the reply."""
        memory, (rows, columns) = self._memory, decoded.image.shape[:2]
        image = image_in(memory, slot, rows, columns)
        if not np.may_share_memory(image, decoded.image):
            image[:] = decoded.image
        picture = decoded.picture if len(decoded.picture) <= PICTURE_BYTES else b""
        place = slot * SLOT_BYTES + FRAME_BYTES + decoded.image.size
        behind = decoded.still + picture
        memory[place : place + len(behind)] = behind
        high = wide = 0
        if decoded.detail is not None and decoded.detail.size <= DETAIL_BYTES:
            high, wide = decoded.detail.shape[:2]
            image_in(memory, slot, high, wide, decoded.image.size + len(behind))[:] = decoded.detail
        logits = b"".join(LOGIT.pack(logit) for logit in decoded.logits)
        ended = time.monotonic()
        return REPLY.pack(slot, DECODED, rows, columns, len(decoded.still), began, ended, decoded.cpu_seconds,
                          len(logits), decoded.unit, len(picture), high, wide) + logits  # fmt: skip


def fork_decoders(control: socket.socket, memory: mmap.mmap, network: AppearanceNetwork) -> None:
    """Fork a decoder for every socket that arrives over `control`, until its other end is closed."""
    while True:
        message, sockets, _, _ = socket.recv_fds(control, 8, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            first = message[0] * SHARE_BYTES
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            share = memoryview(memory)[first : first + SHARE_BYTES]
            Decoders(socket.socket(fileno=sockets[0]), share, network).serve()
            os._exit(0)
        os.close(sockets[0])


def main() -> None:
    """Run `python -m embereye.camera.decode.process CONTROL MEMORY`; both arguments are file descriptors."""
    # The shard ends this process by closing its sockets. A terminal sends Ctrl-C to all processes at once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # decoders that have ended need no wait()
    cv2.setNumThreads(1)
    keep_freed_memory()
    frame = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes()
    decode(frame, 1, (16, 16))  # loads the libraries that are loaded on first use
    network = load_network()
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes reference cycles, and unwritten pages stay shared
    control, descriptor = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    fork_decoders(control, mmap.mmap(descriptor, os.fstat(descriptor).st_size), network)


if __name__ == "__main__":
    main()
