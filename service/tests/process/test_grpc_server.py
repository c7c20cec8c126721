import asyncio

import grpc

from embereye.process.addresses import free_ports
from embereye.process.grpc_server import channel

NEVER = (("grpc.initial_reconnect_backoff_ms", 3_600_000), ("grpc.max_reconnect_backoff_ms", 3_600_000))


async def test_a_caller_can_choose_another_back_off() -> None:
    """The default back-off finds a restarted server at once; a custom one of an hour does not."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    async with channel(address) as usual, channel(address, NEVER) as patient:
        for link in (usual, patient):
            while link.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await asyncio.sleep(0.01)
        server = grpc.aio.server()
        server.add_insecure_port(address)
        await server.start()
        async with asyncio.timeout(30):
            await usual.channel_ready()
        assert patient.get_state(try_to_connect=True) is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        await server.stop(0)
