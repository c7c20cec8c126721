"""Decoder process: turns compressed frames into small images, and sometimes into a still for people.

Decoding takes most of a camera shard's time and passes hostile bytes to a large C library, so it has separate
processes. They do not wait for the shard's interpreter, and a process that crashes or hangs on a frame affects nothing
else. A parent that has loaded only OpenCV forks them, so another decoder costs a few megabytes and milliseconds.

A decoder runs one loop. It receives a message of orders, decodes their frames from the shared memory, and sends the
replies in the same order. Timers end the process if an order takes too long. The slot in work is marked in the shared
memory, so that the pool knows which frame ended the process.
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

from embereye.camera.decode.image import (
    STILL_BYTES,
    Decoded,
    PictureDelayedError,
    TruncatedError,
    UndecodableError,
    add_logits,
    decode,
    decode_frame,
)
from embereye.camera.decode.shipped import load_network
from embereye.camera.decode.video import VideoDecoder
from embereye.camera.decode.wire import (
    AT_NONE,
    DETAIL_BYTES,
    FRAME_BYTES,
    FRAME_SECONDS,
    HANG_SECONDS,
    IMAGE_BYTES,
    MARK,
    MESSAGE_BYTES,
    PICTURE_BYTES,
    READY,
    REASON_BYTES,
    SHARE_BYTES,
    SLOT_BYTES,
    UNIT_SECONDS,
    Forget,
    Order,
    Outcome,
    Reply,
    Units,
    read_order,
)
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
        order, behind = read_order(message, at)
        if isinstance(order, Forget):
            self._streams.pop(order.stream, None)
            return b"", behind
        slot, began = order.slot, time.monotonic()
        try:
            decoded = add_logits(self._decode(order), order.how, self._network)
        except PictureDelayedError:
            return Reply(slot, Outcome.DELAYED, began, time.monotonic()).pack(), behind
        except UndecodableError as error:
            outcome = Outcome.TRUNCATED if isinstance(error, TruncatedError) else Outcome.FAILED
            reason = str(error).encode()[:REASON_BYTES]
            return Reply(slot, outcome, began, time.monotonic(), rest=reason).pack(), behind
        return Reply.write(self._memory, slot, decoded, began).pack(), behind

    def _decode(self, order: Order) -> Decoded:
        begin = order.slot * SLOT_BYTES
        if order.video:
            return self._decode_video(order, order.video, begin)
        place = begin + FRAME_BYTES
        room = self._memory[place : place + IMAGE_BYTES - STILL_BYTES - PICTURE_BYTES - DETAIL_BYTES]
        data = self._memory[begin : begin + order.size]
        return decode_frame(order.how, data, order.width, order.height, room, PICTURE_BYTES)

    def _decoder_of(self, video: Units, *, smoothed: bool) -> VideoDecoder:
        """The context of `video`. Another encoding, or another smoothing at a key frame, creates one."""
        known = self._streams.get(video.stream)
        if known is None or known.encoding != video.encoding or (video.fresh and known.smoothed != smoothed):
            known = VideoDecoder(video.encoding, smoothed=smoothed, picture_bytes=PICTURE_BYTES)
            self._streams[video.stream] = known
        return known

    def _decode_video(self, order: Order, video: Units, begin: int) -> Decoded:
        decoder, units = self._decoder_of(video, smoothed=order.how.smoothed), []
        for size, number in video.sizes:
            units.append((self._memory[begin : begin + size], number))
            begin += size
        signal.setitimer(signal.ITIMER_PROF, UNIT_SECONDS * (1 + len(units) / 8))
        try:
            return decoder.decode(order.how, units)
        except UndecodableError:
            del self._streams[video.stream]  # the next key frame gets a decoder without the damaged state
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, FRAME_SECONDS)


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
