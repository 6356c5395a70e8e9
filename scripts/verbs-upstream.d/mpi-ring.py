"""A program of MPI: arrays of 8 bytes to 4 MiB go around a ring, and are summed; both are compared."""
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
me, all_of_us = world.Get_rank(), world.Get_size()
assert all_of_us == 2, "mpiexec starts two"
for bits in range(0, 20):
    count = 1 << bits
    given = numpy.arange(count, dtype=numpy.int64) * 7 + me
    found = numpy.zeros(count, dtype=numpy.int64)
    world.Sendrecv(given, (me + 1) % all_of_us, recvbuf=found, source=(me - 1) % all_of_us)
    assert (found == numpy.arange(count, dtype=numpy.int64) * 7 + (me - 1) % all_of_us).all()
    world.Allreduce(given, found)
    assert (found == sum(numpy.arange(count, dtype=numpy.int64) * 7 + rank for rank in range(all_of_us))).all()
