#!/usr/bin/env python3
"""A process of p2pstore puts arrays of 4 KiB to 4 MiB, another gets them: p2pstore-pair.py put|get ADDRESS METADATA.

The one that puts says "put", and stays until its input ends."""

import asyncio
import sys

import numpy as np
from p2pstore import P2PClient, P2PConfig

SIZES = [4096, 65536, 65537 * 4, 1 << 20, 4 << 20]


def array(number, size):
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


async def main():
    side, address, metadata = sys.argv[1:]
    client = P2PClient(P2PConfig(metadata_server=metadata, protocol="rdma", device="transom0", local_host=address))
    for number, size in enumerate(SIZES):
        if side == "put":
            assert await client.put(f"key-{number}", array(number, size)) is not False
        else:
            got = await client.get(f"key-{number}")
            assert np.array_equal(np.asarray(got).view(np.uint8).ravel(), array(number, size)), number
    print(side, flush=True)
    if side == "put":
        sys.stdin.read()
    client.close()


asyncio.run(main())
