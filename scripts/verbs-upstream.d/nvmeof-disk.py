#!/usr/bin/env python3
"""8 MiB are written to an NVMe-oF disk by the package nvmeof, read back, and compared: nvmeof-disk.py ADDRESS PORT."""

import os
import sys

import nvmeof

SIZE = 8 << 20

with nvmeof.Controller.connect(sys.argv[1], "nqn.2016-06.io.spdk:disk", port=int(sys.argv[2])) as controller:
    disk = controller.namespace(1)
    written = os.urandom(SIZE)
    with controller.allocate(SIZE) as out, controller.allocate(SIZE) as back:
        out.write(written)
        disk.write(out, slba=0)
        disk.flush()
        disk.read(back, slba=0)
        assert back.read() == written
print("written and read")
