"""Decoders for the tests of this folder."""

from collections.abc import AsyncIterator

import pytest

from embereye.camera.decode.pool import DecoderPool


@pytest.fixture
async def pool() -> AsyncIterator[DecoderPool]:
    """Two decoders, running."""
    decoders = DecoderPool(2)
    await decoders.start()
    yield decoders
    decoders.stop()
