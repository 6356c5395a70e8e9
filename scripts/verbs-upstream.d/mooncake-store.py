"""Mooncake's store: values of 64 KiB to 4 MiB are put by one client, got by another, and compared. Words: MASTER
METADATA ADDRESS."""
import subprocess
import sys

import numpy
from mooncake.store import MooncakeDistributedStore

master, metadata, address = sys.argv[1:4]
values = {f"key {at}": numpy.random.default_rng(at).bytes((1 << 16) << at) for at in range(7)}
store = MooncakeDistributedStore()
assert store.setup(address, metadata, 64 << 20, 16 << 20, "rdma", "", master) == 0
if len(sys.argv) == 4:
    for key, value in values.items():
        assert store.put(key, value) == 0, key
    subprocess.run([sys.executable, *sys.argv, "get"], check=True)
else:
    for key, value in values.items():
        assert store.get(key) == value, key
store.close()
