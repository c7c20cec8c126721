"""Clips/Store over associations."""

from embereye.addons.control.associated import associated
from embereye.addons.control.associations import Call
from embereye.hub.clips.store import ClipStore
from embereye.hub.roles import Role
from embereye.hub.services.store import Storing, part_of
from embereye.v1.clips_pb2 import StoreResponse
from embereye.wire.delimited import Buffers

CALL = "embereye.v1.Clips/Store"
MAX_MESSAGE = 1024 * 1024 + 8 * 1024  # bytes
BUFFERED = 16 * 1024 * 1024  # bytes of memory reserved for the next messages


def store_call(clips: ClipStore) -> Call:
    """The call that stores stills and clips of other programs in `clips`."""
    buffers = Buffers(BUFFERED)
    return associated(
        lambda parts: Storing(clips, buffers).responses(parts),
        part_of,
        StoreResponse,
        Role.OPERATOR,
        MAX_MESSAGE,
        buffers,
    )
