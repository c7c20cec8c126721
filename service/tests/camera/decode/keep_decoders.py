"""A process with two decoders that waits to be killed; prints the id of the process that forks them."""

import asyncio

from embereye.camera.decode.pool import DecoderPool


async def main():
    pool = DecoderPool(2)
    await pool.start()
    print(pool._forker._process.pid, flush=True)
    await asyncio.sleep(60)


asyncio.run(main())
