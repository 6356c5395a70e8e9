"""NIXL: the initiator reads 8 MiB of the target's in 128 pieces, by UCX. Words: target | initiator, PORT."""
import sys

import numpy
from nixl._api import nixl_agent, nixl_agent_config

SIZE, PIECE = 8 << 20, 65536
role, port = sys.argv[1], int(sys.argv[2])
agent = nixl_agent(role, nixl_agent_config(True, True, port if role == "target" else 0, backends=["UCX"]))
wanted = numpy.arange(SIZE, dtype=numpy.uint32).view(numpy.uint8)[:SIZE]
memory = wanted.copy() if role == "target" else numpy.zeros(SIZE, dtype=numpy.uint8)
agent.register_memory([(memory.ctypes.data, SIZE, 0, "")], "DRAM")
pieces = agent.get_xfer_descs([(memory.ctypes.data + at, PIECE, 0) for at in range(0, SIZE, PIECE)], "DRAM")
if role == "target":
    print("listening", flush=True)
    while not agent.check_remote_metadata("initiator"):
        pass
    agent.send_notif("initiator", agent.get_serialized_descs(pieces))
    while not agent.check_remote_xfer_done("initiator", b"done"):
        pass
else:
    agent.fetch_remote_metadata("target", "127.0.0.1", port)
    agent.send_local_metadata("127.0.0.1", port)
    while not (notes := agent.get_new_notifs().get("target")):
        pass
    while not agent.check_remote_metadata("target"):
        pass
    transfer = agent.initialize_xfer("READ", pieces, agent.deserialize_descs(notes[0]), "target", b"done")
    state = agent.transfer(transfer)
    while state not in ("DONE", "ERR"):
        state = agent.check_xfer_state(transfer)
    assert state == "DONE" and (memory == wanted).all(), state
