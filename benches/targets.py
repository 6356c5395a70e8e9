"""The table of targets: every row runs `transom bench`, which interleaves at least 15 pairs of ours and
the baseline. Used by performance.py."""

import json
import shutil
import subprocess
import sys
import time

BOTH = "write-bandwidth and read-bandwidth"
CHECK = "check --tokens"


class Row:
    """One target. `value`: which figure of the JSON counts, `ratio` or `median`."""

    def __init__(self, bench, options, baseline, better, goal, value="ratio", unit=1.0, suffix="", order=None):
        self.bench, self.options, self.baseline = bench, options.split(), baseline
        self.better, self.goal, self.value, self.unit, self.suffix, self.order = better, goal, value, unit, suffix, order

    def title(self):
        order = f" --order {self.order}" if self.order else ""
        return f"{self.bench} {' '.join(self.options)}{order}".strip()

    def command(self, binary, seconds):
        order = ["--order", self.order] if self.order else []
        return [binary, "bench", self.bench] + self.options + order + ["--seconds", f"{seconds:g}", "--baseline", "--json"]

    def run(self, binary, seconds):
        done = subprocess.run(self.command(binary, seconds), capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout)

    def figure(self, found):
        """Median and quartiles of what counts."""
        low, high = found["ratio_quartiles" if self.value == "ratio" else "quartiles"]
        return tuple(figure * self.unit for figure in (found[self.value], low, high))

    def is_met(self, found):
        median = self.figure(found)[0]
        return median <= self.goal if self.better == "<=" else median >= self.goal


def latency(options, baseline, goal):
    return Row("write-latency", f"--size 8 {options}", baseline, "<=", goal)


def bandwidth(direction, options, baseline, goal):
    return Row(f"{direction}-bandwidth", f"--size 1048576 {options}", baseline, ">=", goal)


LINE, SOCKET = "a cache line that two threads write in turns", "raw socket, spinning"
RAW, MEMCPY, LOAD = "raw stream, the fastest of four ways", "`memcpy` in one thread", "an unguarded load"
ROWS = [
    latency("--wait spin --path process", LINE, 2.2),
    latency("--wait block --path process", "a Unix socket, blocking", 1.2),
    *(
        Row(f"{kind}-latency", f"--size 8 --wait {wait} --path {path}", other, "<=", goal)
        for path, wait, other, goals in [
            ("process", "spin", LINE, (2.9, 2.4, 2.4)),
            ("process", "watch", LINE, (None, 2.4, 2.4)),
            ("tcp", "spin", SOCKET, (1.4, 1.15, 1.15)),
        ]
        for kind, goal in zip(("send", "read", "atomic"), goals)
        if goal
    ),
    bandwidth("write", "--path process", MEMCPY, 0.8),
    bandwidth("read", "--path process", MEMCPY, 0.8),
    bandwidth("write", "--path process --shared", MEMCPY, 0.9),
    bandwidth("read", "--path process --shared", MEMCPY, 0.9),
    Row("message-rate", "--path process", "a bare ring of cache lines", ">=", 20, "median", 1e-6, " million/s"),
    Row("send-rate", "--path process", "a bare ring of cache lines", ">=", 10, "median", 1e-6, " million/s"),
    latency("--wait spin --path tcp", SOCKET, 1.05),
    latency("--wait block --path tcp", "raw socket, blocking", 1.2),
    bandwidth("write", "--path tcp --crc off", RAW, 0.95),
    bandwidth("read", "--path tcp --crc off", RAW, 0.95),
    bandwidth("write", "--path tcp --crc on", RAW, 0.8),
    bandwidth("read", "--path tcp --crc on", RAW, 0.8),
    Row("message-rate", "--path tcp", "raw socket, one call each", ">=", 5),
    Row("check", "--tokens 1000", LOAD, "<=", 6, "median", 1, " ns", order="overlapped"),
    Row("check", "--tokens 1000000", LOAD, "<=", 1.1, order="dependent"),
    Row("check", "--tokens 1000000", LOAD, "<=", 1.3, order="overlapped"),
    Row("check", "--tokens 1000000", LOAD, "<=", 10, "median", 1, " ns", order="batched"),
    Row("bind", "", "the token table alone", "<=", 100, "median", 1, " ns"),
    Row("register", "--size 4096", "the question to the kernel alone", "<=", 1, "median", 1e-3, " µs"),
    Row("register", "--size 1073741824", "the question to the kernel alone", "<=", 5, "median", 1e-3, " µs"),
    Row("connections", "--connections 10000 --active 100", "100 connections, all active", ">=", 0.9),
]


# A stream's baseline counts if a second program is within this much of it.
AGREES = 0.1


def iperf3():
    """Bytes per second of iperf3 over loopback, the best of four ways, on the same two processors; `None` without it."""
    if not shutil.which("iperf3"):
        return None
    best = 0
    for turn, call in enumerate(["64K", "1M"] * 2):
        port = str(29600 + turn)
        server = subprocess.Popen(["iperf3", "-s", "-1", "-A", "1", "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client = ["iperf3", "-c", "127.0.0.1", "-A", "0", "-p", port, "-t", "1", "-l", call, "-J"]
            for _ in range(50):
                done = subprocess.run(client, capture_output=True, text=True, timeout=30)
                # In words of its own, and with status 0, while the server does not listen yet.
                received = json.loads(done.stdout)["end"].get("sum_received")
                if received:
                    best = max(best, received["bits_per_second"] / 8)
                    break
                time.sleep(0.05)
        finally:
            server.terminate()
            server.wait()
    return best or None


def confirmed(row, found):
    """Whether a second program agrees with the baseline, in words; empty for baselines that have none."""
    if row.baseline != RAW:
        return ""
    other = iperf3()
    if other is None:
        return "; not confirmed, iperf3 is not here"
    share = other / found["baseline_median"]
    said = f"iperf3 {absolute(other, 'bytes/s')}"
    return f"; {said}" if abs(share - 1) <= AGREES else f"; **not confirmed**, {said}"


def absolute(value, unit):
    """A figure with a unit that people read."""
    if unit == "bytes/s":
        return f"{value / 1e9:.1f} GB/s"
    if unit == "messages/s":
        return f"{value / 1e6:.2f} million/s"
    return f"{value / 1e3:.2f} µs" if value >= 1000 else f"{value:.1f} ns"


def number(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def line(row, found):
    """One line of the table."""
    limit = {"<=": "≤", ">=": "≥"}[row.better]
    goal = f"{limit} {row.goal:g}{row.suffix}"
    if found is None:
        return f"| `{row.title()}` | {row.baseline} | {goal} | – | did not run |"
    median, low, high = row.figure(found)
    measured = f"{number(median)}{row.suffix} [{number(low)}–{number(high)}]"
    measured = f"**{measured}**, missed" if not row.is_met(found) else measured
    ours, base = absolute(found["median"], found["unit"]), absolute(found["baseline_median"], found["unit"])
    ratio = "" if row.value == "ratio" else f", ratio {number(found['ratio'])}"
    return f"| `{row.title()}` | {row.baseline} | {goal} | {measured} | {ours} to {base}{ratio}{found.get('confirmed', '')} |"


def table(results):
    head = ["| bench | compared with | goal | median [quartiles] | ours to the other |", "|---|---|---|---|---|"]
    return "\n".join(head + [line(row, found) for row, found in results])


def measure(binary, seconds):
    """Every row, in order. A row that fails is told, and leaves a gap."""
    results = []
    for row in ROWS:
        begin = time.monotonic()
        try:
            found = row.run(binary, seconds)
            found["confirmed"] = confirmed(row, found)
        except (RuntimeError, subprocess.TimeoutExpired, ValueError) as error:
            print(f"{row.title()}: {error}", file=sys.stderr)
            found = None
        results.append((row, found))
        print(f"{line(row, found)}  ({time.monotonic() - begin:.0f} s)", file=sys.stderr)
    return results
