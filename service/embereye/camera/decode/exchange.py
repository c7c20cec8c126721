"""What the pool and its decoder processes exchange: images in shared memory, orders and replies by socket."""

import mmap
import struct

import numpy as np

from embereye.camera.decode.image import DecodedImage

HANG_SECONDS = 5.0  # for one frame; the slowest honest one takes a tenth of that
SLOTS = 8  # frames that each decoder can hold
FRAME_BYTES = 8 * 1024 * 1024  # of a compressed frame
IMAGE_BYTES = 256 * 1024  # of an image of the working size, and its still
SLOT_BYTES = FRAME_BYTES + IMAGE_BYTES  # of address space: what is not used takes no memory
MARK = SLOTS * SLOT_BYTES  # the byte in which a decoder notes the slot it is at: the frame it died of, if it dies
AT_NONE = 255  # in that byte: it is at none
SHARE_BYTES = MARK + mmap.PAGESIZE  # of each decoder
# Slot, scale, boxes, whether to make a still, whether the appearance network is to run, close-ups, bytes, width,
# height; then the boxes, then the close-ups.
ORDER = struct.Struct("=BBB??BIHH")
BOX = struct.Struct("=4f")
# Slot, whether it is decoded, rows, columns, bytes of the still, when it began and ended, CPU seconds, bytes of what
# follows: the network's logits; or the reason why it is not decoded.
REPLY = struct.Struct("=B?HHIdddH")
LOGIT = struct.Struct("=f")
REASON_BYTES = 200  # at most
READY = b"ready"  # a decoder's first message
MESSAGE_BYTES = 4096  # of orders, or of replies, in one message at most


def image_in(memory: memoryview, slot: int, rows: int, columns: int) -> DecodedImage:
    """The image of `rows` x `columns` in `slot`, where it lies: it is overwritten once the slot is reused."""
    return np.ndarray((rows, columns, 3), np.uint8, memory, slot * SLOT_BYTES + FRAME_BYTES)


def still_in(memory: memoryview, slot: int, rows: int, columns: int, size: int) -> bytes:
    """A copy of the still in `slot`, which lies behind its image."""
    place = slot * SLOT_BYTES + FRAME_BYTES + 3 * rows * columns
    return bytes(memory[place : place + size])
