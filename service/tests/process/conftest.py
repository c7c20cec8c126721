from typing import Any

import uvloop


def pytest_asyncio_loop_factories(item: Any) -> dict[str, Any]:
    """Run processes on uvloop, whose transports differ from asyncio's."""
    return {"uvloop": uvloop.new_event_loop}
