from typing import Any

from embereye.process.event_loop import EventLoop


def pytest_asyncio_loop_factories(item: Any) -> dict[str, Any]:
    """Run processes on their event loop, whose transports differ from asyncio's."""
    return {"uvloop": EventLoop}
