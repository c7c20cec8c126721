import asyncio

import grpc

from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel

NEVER = (("grpc.initial_reconnect_backoff_ms", 3_600_000), ("grpc.max_reconnect_backoff_ms", 3_600_000))


async def test_a_caller_may_ask_for_another_back_off_than_all_have() -> None:
    """A server that is back is found at once by who asks for nothing, and not by who asks for an hour's wait."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with channel(address) as usual, channel(address, NEVER) as patient:
        for one in (usual, patient):
            while one.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await asyncio.sleep(0.01)
        server = grpc.aio.server()
        server.add_insecure_port(address)
        await server.start()
        async with asyncio.timeout(30):
            await usual.channel_ready()
        assert patient.get_state(try_to_connect=True) is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        await server.stop(0)
