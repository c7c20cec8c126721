"""Fixtures with decoders."""

from collections.abc import AsyncIterator

import pytest

from embereye.camera.decode.pool import DecoderPool


@pytest.fixture
async def pool() -> AsyncIterator[DecoderPool]:
    """A pool of two running decoders."""
    decoders = DecoderPool(2)
    await decoders.start()
    yield decoders
    decoders.stop()
