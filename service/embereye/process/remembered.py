"""Answers of name servers, remembered for the time in which they do not answer.

A camera whose connection breaks while DNS is away would stay dark, and a webhook would not be called. So the answer
from before is used if a lookup fails or takes long. A lookup may take 20 s after a node was lost that served DNS.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

LOOKUP_SECONDS = 1.0  # for a lookup before the answer from before is used

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Remembered(Generic[Key, Answer]):
    """The latest answer to each lookup."""

    def __init__(self) -> None:
        self._answers: dict[Key, Answer] = {}

    async def get(self, key: Key, look_up: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of `look_up`; the one from before if it fails or takes long. OSError if there is none."""
        is_known = key in self._answers
        try:
            async with asyncio.timeout(LOOKUP_SECONDS if is_known else None):
                self._answers[key] = await look_up()
        except OSError:  # TimeoutError is one
            if not is_known:
                raise
        return self._answers[key]
