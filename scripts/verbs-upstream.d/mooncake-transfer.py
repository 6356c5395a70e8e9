"""Mooncake's transfer engine: the initiator reads 1 MiB of the target's, and writes another. Words: target |
initiator, PORT (of a socket by which each learns where the other is)."""
import socket
import struct
import sys
import time

import numpy
from mooncake.engine import TransferEngine

SIZE = 1 << 20
role, port = sys.argv[1], int(sys.argv[2])
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
wanted = numpy.arange(SIZE, dtype=numpy.uint32).view(numpy.uint8)[:SIZE]
memory = wanted.copy() if role == "target" else numpy.zeros(SIZE, dtype=numpy.uint8)
address = memory.ctypes.data
assert engine.register_memory(address, SIZE) == 0
if role == "target":
    listener = socket.create_server(("127.0.0.1", port))
    print("listening", flush=True)
    peer, _ = listener.accept()
    peer.sendall(struct.pack("!QI", address, engine.get_rpc_port()))
    peer.recv(1)
    assert (memory == 7).all()
else:
    peer = socket.create_connection(("127.0.0.1", port))
    there, rpc = struct.unpack("!QI", peer.recv(12, socket.MSG_WAITALL))
    assert engine.transfer_sync_read(f"127.0.0.1:{rpc}", address, there, SIZE) == 0
    assert (memory == wanted).all()
    memory[:] = 7
    assert engine.transfer_sync_write(f"127.0.0.1:{rpc}", address, there, SIZE) == 0
    peer.sendall(b"x")
