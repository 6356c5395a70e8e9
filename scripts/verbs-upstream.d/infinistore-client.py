"""InfiniStore's client: ten blocks of 64 KiB are written, read into other memory, and compared. Words: ADDRESS PORT."""
import asyncio
import sys

import infinistore
import numpy

COUNT, SIZE = 10, 65536
config = infinistore.ClientConfig(host_addr=sys.argv[1], service_port=int(sys.argv[2]), dev_name="transom0",
                                  link_type=infinistore.LINK_ETHERNET, connection_type=infinistore.TYPE_RDMA)
connection = infinistore.InfinityConnection(config)
connection.connect()
given = numpy.random.default_rng(7).integers(0, 256, COUNT * SIZE, dtype=numpy.uint8)
found = numpy.zeros(COUNT * SIZE, dtype=numpy.uint8)
for memory in given, found:
    connection.register_mr(memory.ctypes.data, memory.nbytes)
blocks = [(f"block {at}", at * SIZE) for at in range(COUNT)]


async def there_and_back():
    await connection.rdma_write_cache_async(blocks, SIZE, given.ctypes.data)
    await connection.rdma_read_cache_async(blocks, SIZE, found.ctypes.data)


asyncio.run(there_and_back())
assert (given == found).all()
connection.close()
