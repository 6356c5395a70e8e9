"""The bindings `ibverbs` (rdma4py): two queue pairs of one process, a Send, a Write and a Read of 64 KiB."""
import ibverbs
import numpy
from ibverbs import AccessFlags, QPInitAttr, RecvWR, SGE, SendFlags, SendWR, WROpcode

SIZE = 1 << 16
ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
context = ibverbs.get_device_list()[0].open()
domain = context.alloc_pd()


class Side:
    def __init__(self, fill):
        self.queue = context.create_cq(64)
        attributes = QPInitAttr(send_cq=self.queue, recv_cq=self.queue, max_send_wr=16, max_recv_wr=16)
        self.pair = domain.create_qp(attributes)
        self.memory = numpy.full(SIZE, fill, dtype=numpy.uint8)
        self.region = ibverbs.reg_tensor(domain, self.memory, ACCESS)
        self.about = ibverbs.local_qp_info(self.pair, context.query_port(1), context.query_gid(1, 0), psn=fill, port=1)

    def next(self):
        while not (found := self.queue.poll(1)):
            pass
        return found[0]


one, other = Side(1), Side(2)
for side, peer in [(one, other), (other, one)]:
    ibverbs.connect_rc(side.pair, peer.about, port=1, access=ACCESS, local_psn=side.about.psn, sgid_index=0)
other.pair.post_recv(RecvWR(wr_id=7, sg_list=[SGE(other.region, SIZE)]))
for opcode, fill, result in [(WROpcode.SEND, 3, 3), (WROpcode.RDMA_WRITE, 4, 4), (WROpcode.RDMA_READ, 5, 4)]:
    one.memory[:] = fill
    there = {} if opcode == WROpcode.SEND else {"remote_addr": other.region.addr, "rkey": other.region.rkey}
    request = SendWR(wr_id=8, sg_list=[SGE(one.region, SIZE)], opcode=opcode, send_flags=SendFlags.SIGNALED, **there)
    one.pair.post_send(request)
    assert one.next().status == 0 and (one.memory == result).all(), opcode
assert other.next().wr_id == 7 and (other.memory == 4).all()
