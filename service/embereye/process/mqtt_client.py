"""aiomqtt's client, which registers no descriptor of a closed socket at the event loop.

paho may connect in a thread, so aiomqtt registers a socket a moment after paho asked for it. If the socket is closed by
then, its number may belong to another connection: uvloop logs an error with a traceback, or that connection never
learns again that it can be written.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiomqtt


class MqttClient(aiomqtt.Client):
    """An aiomqtt client. The arguments are those of aiomqtt.Client."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loop: Any = _Registrations(self._loop)


class _Registrations:
    """The event loop as aiomqtt calls it. To remove a descriptor also cancels registrations that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[tuple[Callable[..., Any], int], asyncio.Handle] = {}

    def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any) -> asyncio.Handle:
        handle = self._loop.call_soon_threadsafe(callback, *arguments)
        if callback in (self._loop.add_reader, self._loop.add_writer):
            self._waiting[callback, arguments[0]] = handle
        return handle

    def remove_reader(self, descriptor: int) -> bool:
        self._cancel(self._loop.add_reader, descriptor)
        return self._loop.remove_reader(descriptor)

    def remove_writer(self, descriptor: int) -> bool:
        self._cancel(self._loop.add_writer, descriptor)
        return self._loop.remove_writer(descriptor)

    def _cancel(self, callback: Callable[..., Any], descriptor: int) -> None:
        if handle := self._waiting.pop((callback, descriptor), None):
            handle.cancel()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)
