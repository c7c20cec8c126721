import grpc
import pytest
from harness.eventually import eventually

from embereye.process.tls.trust import trusting
from embereye_bench.certificate import certificate
from embereye_bench.sensors.messages import Messages

METHOD = "/test.Service/Take"


@pytest.fixture(params=["plain", "tls"])
async def server(request):
    """A client factory, and the messages that a real gRPC server with small windows received and answered."""
    arrived = []

    async def receive(requests, context):
        async for message in requests:
            arrived.append(message)
            yield b"answer"

    handlers = {"Take": grpc.stream_stream_rpc_method_handler(receive)}
    running = grpc.aio.server(options=[("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 8192)])
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", handlers),))
    tls = None
    with certificate() as folder:
        if request.param == "tls":
            pair = (folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes()
            port = running.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
            tls = trusting(folder / "ca.crt")
            tls.set_alpn_protocols(["h2"])
        else:
            port = running.add_insecure_port("127.0.0.1:0")
    await running.start()

    yield lambda: Messages(f"127.0.0.1:{port}", METHOD, tls), arrived
    await running.stop(0)


async def test_messages_of_all_sizes_arrive_whole_and_in_order(server):
    connect, arrived = server
    stream = connect()
    sent = [bytes([number]) * size for number, size in enumerate([1, 0, 16_379, 16_380, 40_000, 300_000, 2])]
    for number, message in enumerate(sent):
        assert stream.offer(message[:5], message[5:])
        await eventually(lambda number=number: len(arrived) > number)
    assert arrived == sent
    stream.close()


async def test_the_latest_message_replaces_a_waiting_one(server):
    connect, arrived = server
    stream = connect()
    accepted = [stream.offer(number.to_bytes(2) * 50_000) for number in range(200)]
    assert not all(accepted)
    await eventually(lambda: arrived and arrived[-1] == (199).to_bytes(2) * 50_000)
    numbers = [int.from_bytes(message[:2]) for message in arrived]
    assert numbers == sorted(set(numbers))
    assert all(message == number.to_bytes(2) * 50_000 for number, message in zip(numbers, arrived, strict=True))
    stream.close()
