"""Transom beside what people use without a NIC: libfabric (fi_pingpong) and UCX (ucx_perftest). Used by
performance.py.

Runs every tool once per round, so that a slow minute hurts all of them. Every side spins; the first
process is pinned to CPU 0, the second to CPU 1. Makes a Markdown table of medians with quartiles, and
`alternatives.json` and `alternatives.svg`.

What is the same, and what is not:
- latency is half a round trip of one message for all of them;
- fi_pingpong has one message under way, so its "bandwidth" is compared with Transom's 1 MiB latency
  ("one at a time"); ucx_perftest and Transom's write-bandwidth keep several under way ("streaming");
- a message fills a receive of the peer's: that is what fi_pingpong and UCX `tag` measure anyway;
- a Read and a fetch-and-add are measured there and back, one at a time, with a target that polls;
- UCX `put` over `posix` maps the peer's memory into the initiator: no check stands between them; `tag`
  matches a message with a receive, and copies it twice.

What passes between two processors hangs on the cost of a cache line, which changes within seconds on a
virtual machine. A Transom bench of a moment, which measures that, runs before and after each tool; what
the tool had while the line was near (below 90 ns), and far, has rows of its own, and what it had while
the line changed is dropped.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20
# The next port: below those that the system gives to connections, such as the thousand others of a bench
# that ran before.
PORTS = iter(range(20100, 32000))


def pinned(cpu, command):
    return ["taskset", "-c", str(cpu)] + command


def pair(server, client, environment=None, limit=60):
    """Runs a server and a client, and returns what the client printed."""
    env = dict(os.environ, **(environment or {}))
    first = subprocess.Popen(pinned(0, server), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # Neither tool says when it listens: ask again until the client gets through.
        until = time.monotonic() + limit
        while True:
            done = subprocess.run(pinned(1, client), env=env, capture_output=True, text=True, timeout=limit)
            if done.returncode == 0:
                return done.stdout
            if first.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{' '.join(client)}: {done.stderr.strip() or done.stdout.strip()}")
            time.sleep(0.05)
    finally:
        first.terminate()
        first.wait()


class FiPingpong:
    """One libfabric provider."""

    def __init__(self, provider, endpoint):
        self.name = f"libfabric {provider}"
        self.base = ["fi_pingpong", "-p", provider, "-e", endpoint]

    def command(self, size, iterations):
        return self.base + ["-S", str(size), "-I", str(iterations)]

    def half_round_trip(self, size):
        """Microseconds."""
        iterations = 20_000 if size < 65536 else 1_000
        command, port = self.command(size, iterations), str(next(PORTS))
        # bytes  #sent  #ack  total  time  MB/sec  usec/xfer  Mxfers/sec
        line = pair(command + ["-B", port], command + ["-P", port, "127.0.0.1"]).strip().splitlines()[-1]
        return float(line.split()[6])

    def message(self):
        return self.half_round_trip(8)

    def read(self):
        return None

    def atomic(self):
        return None

    def rate(self):
        return None

    def streaming(self, _size):
        return None

    def commands(self):
        return [" ".join(self.command(8, 20_000)), " ".join(self.command(8, 20_000) + ["127.0.0.1"])]


class Ucx:
    """One UCX transport, by `put` or by `tag`."""

    def __init__(self, transport, test):
        self.name = f"UCX {transport}, {test}"
        self.tests = {"put": "ucp_put", "tag": "tag"}[test]
        self.environment = {"UCX_TLS": f"{transport},self"}

    def run(self, test, size, iterations, more=()):
        port = str(next(PORTS))
        client = ["ucx_perftest", "127.0.0.1", "-p", port, "-t", test, "-s", str(size), "-n", str(iterations), "-w", "1000", "-f", "-v", *more]
        line = pair(["ucx_perftest", "-p", port], client, self.environment).strip().splitlines()[-1]
        # iterations, median latency, average latency, overall latency, average and overall MB/s, rates
        return line.split(",")

    def half_round_trip(self, size):
        return float(self.run(self.tests + "_lat", size, 50_000 if size < 65536 else 1_000)[1])

    def message(self):
        return self.half_round_trip(8) if self.tests == "tag" else None

    def read(self):
        """Microseconds, there and back."""
        return float(self.run("ucp_get", 8, 50_000, ["-O", "1"])[1]) if self.tests == "ucp_put" else None

    def atomic(self):
        return float(self.run("ucp_fadd", 8, 50_000, ["-O", "1"])[1]) if self.tests == "ucp_put" else None

    def rate(self):
        """Millions of messages in a second."""
        return float(self.run("tag_bw", 8, 500_000)[7]) / 1e6 if self.tests == "tag" else None

    def streaming(self, size):
        """GB/s; the tool counts 2^20 bytes as a megabyte."""
        return float(self.run(self.tests + "_bw", size, 5_000)[5]) * MIB / 1e9

    def commands(self):
        tls = self.environment["UCX_TLS"]
        return [f"UCX_TLS={tls} ucx_perftest", f"UCX_TLS={tls} ucx_perftest 127.0.0.1 -t {self.tests}_lat -s 8 -n 50000 -w 1000 -f -v"]


class Transom:
    """One path of ours."""

    def __init__(self, binary, path, crc, shared=False):
        self.name = f"Transom {path}" + ("" if path == "process" else f", CRC {crc}")
        self.base = [binary, "bench"]
        self.options = ["--path", path, "--crc", crc, "--wait", "spin", "--seconds", "1", "--json"]
        if shared:
            self.name += ", shared region"
            self.options.append("--shared")

    def run(self, bench, size):
        # The bench starts its own peer and pins both.
        done = subprocess.run(self.base + [bench, "--size", str(size)] + self.options, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout)

    def latency(self, bench, size):
        answer = self.run(bench, size)
        return answer["median"] * {"ns": 1e-3}[answer["unit"]]

    def half_round_trip(self, size):
        return self.latency("write-latency", size)

    def message(self):
        return self.latency("send-latency", 8)

    def read(self):
        return self.latency("read-latency", 8)

    def atomic(self):
        return self.latency("atomic-latency", 8)

    def rate(self):
        answer = self.run("send-rate", 8)
        return answer["median"] * {"messages/s": 1e-6}[answer["unit"]]

    def streaming(self, size):
        answer = self.run("write-bandwidth", size)
        return answer["median"] * {"bytes/s": 1e-9}[answer["unit"]]

    def commands(self):
        return ["transom bench write-latency --size 8 " + " ".join(self.options)]


def line(binary):
    """Whether a cache line is "near" or "far" now, and its nanoseconds; `None` while that changes."""
    command = [binary, "bench", "write-latency", "--path", "process", "--wait", "spin", "--seconds", "0.05", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = [one for one in json.loads(done.stdout)["by_line"] if one["pairs"]]
    return (found[0]["distance"], found[0]["line"]) if len(found) == 1 else None


def row(tool, before, after):
    """The row that a sample belongs to, by what a cache line cost on either side of it."""
    if before is None or after is None or before[0] != after[0]:
        return None
    return f"{tool.name}, {before[0]}"


# title, unit, how to measure one tool, whether less is better
MEASURES = [
    ("8 B latency", "µs", lambda tool: tool.half_round_trip(8), True),
    ("4 KiB latency", "µs", lambda tool: tool.half_round_trip(4096), True),
    ("8 B message", "µs", lambda tool: tool.message(), True),
    ("8 B Read", "µs", lambda tool: tool.read(), True),
    ("fetch-and-add", "µs", lambda tool: tool.atomic(), True),
    ("8 B messages, streaming", "million/s", lambda tool: tool.rate(), False),
    ("1 MiB, one at a time", "GB/s", lambda tool: MIB / tool.half_round_trip(MIB) / 1e3, False),
    ("1 MiB, streaming", "GB/s", lambda tool: tool.streaming(MIB), False),
]


def summary(values):
    if not values:
        return None
    if len(values) < 2:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def number(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def table(results, counts):
    lines = ["| | " + " | ".join(f"{title} ({unit})" for title, unit, _, _ in MEASURES) + " |"]
    lines.append("|---" * (len(MEASURES) + 1) + "|")
    for name, row in results.items():
        cells = []
        for title, *_ in MEASURES:
            found = row.get(title)
            cells.append("–" if found is None else f"{number(found[1])} [{number(found[0])}–{number(found[2])}], {counts[name][title]}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(results, path):
    """Bars, one panel per measure, drawn to the same scale within a panel."""
    width, bar, left = 800, 20, 250
    out, y = [], 10
    for title, unit, _, less in MEASURES:
        rows = [(name, row[title]) for name, row in results.items() if row.get(title)]
        if not rows:
            continue
        top = max(high for _, (_, _, high) in rows)
        out.append(f'<text x="4" y="{y + 14}" font-weight="bold">{title}, {unit} ({"less" if less else "more"} is better)</text>')
        y += 24
        for name, (low, middle, high) in rows:
            scale = (width - left - 90) / top
            colour = "#0b6e99" if name.startswith("Transom") else "#b0b7bf"
            out.append(f'<text x="{left - 6}" y="{y + 14}" text-anchor="end">{name}</text>')
            out.append(f'<rect x="{left}" y="{y + 2}" width="{middle * scale:.1f}" height="{bar - 5}" fill="{colour}"/>')
            out.append(f'<line x1="{left + low * scale:.1f}" x2="{left + high * scale:.1f}" y1="{y + 9}" y2="{y + 9}" stroke="#222"/>')
            out.append(f'<text x="{left + high * scale + 6:.1f}" y="{y + 14}">{number(middle)}</text>')
            y += bar
        y += 14
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" font-family="sans-serif" font-size="12">'
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + '<rect width="100%" height="100%" fill="white"/>' + "".join(out) + "</svg>\n")


def install():
    missing = [package for tool, package in (("fi_pingpong", "libfabric-bin"), ("ucx_perftest", "ucx-utils"), ("iperf3", "iperf3")) if not shutil.which(tool)]
    if missing:
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        subprocess.run(sudo + ["apt-get", "install", "-y", "-q"] + missing, check=True, stdout=subprocess.DEVNULL)


def version(command):
    text = subprocess.run(command, capture_output=True, text=True).stdout
    words = text.replace("#", " ").replace(":", " ").split()
    return next((word for word in words if word[0].isdigit()), "unknown")


def measure(binary, rounds, out):
    """Both tables' worth of text; with `out`, what it was made of goes there."""
    tools = [Transom(binary, "process", "on"), Transom(binary, "process", "on", True), Transom(binary, "tcp", "on"), Transom(binary, "tcp", "off")]
    tools += [FiPingpong("shm", "rdm"), FiPingpong("tcp", "msg"), FiPingpong("net", "msg"), Ucx("posix", "put"), Ucx("posix", "tag"), Ucx("tcp", "put")]
    names = [f"{tool.name}, {distance}" for tool in tools for distance in ("near", "far")]
    samples, lines, mixed = {name: {title: [] for title, *_ in MEASURES} for name in names}, {"near": [], "far": []}, 0
    for turn in range(rounds):
        for title, unit, one, _ in MEASURES:
            for tool in tools:
                before = line(binary)
                try:
                    value = one(tool)
                except (RuntimeError, subprocess.TimeoutExpired, KeyError, ValueError) as error:
                    print(f"{tool.name}, {title}: {error}", file=sys.stderr)
                    continue
                if value is None:
                    continue
                name = row(tool, before, line(binary))
                if name is None:
                    mixed += 1
                    continue
                lines[before[0]].append(before[1])
                samples[name][title].append(value)
                print(f"round {turn + 1}: {name}, {title}: {number(value)} {unit}", file=sys.stderr)

    samples = {name: found for name, found in samples.items() if any(found.values())}
    results = {name: {title: summary(values) for title, values in found.items()} for name, found in samples.items()}
    counts = {name: {title: len(values) for title, values in found.items()} for name, found in samples.items()}
    distances = {distance: summary(values) for distance, values in lines.items() if values}
    facts = {
        "rounds": rounds,
        "libfabric": version(["fi_info", "--version"]),
        "ucx": version(["ucx_info", "-v"]),
        "congestion_control": open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii").read().strip(),
        "commands": {tool.name: tool.commands() for tool in tools},
        "line_ns": distances,
        "mixed": mixed,
        "samples": counts,
        "quartiles": results,
    }
    if out:
        os.makedirs(out, exist_ok=True)
        with open(os.path.join(out, "alternatives.json"), "w", encoding="utf-8") as file:
            json.dump(facts, file, indent=1)
            file.write("\n")
        plot(results, os.path.join(out, "alternatives.svg"))
    near = "; ".join(f"{distance}: {number(found[1])} ns [{number(found[0])}–{number(found[2])}]" for distance, found in distances.items())
    head = f"Medians [quartiles], number of samples in {rounds} interleaved rounds; a line {near}, {mixed} mixed samples dropped; libfabric {facts['libfabric']}; UCX {facts['ucx']}; TCP {facts['congestion_control']}."
    return f"{head}\n\n{table(results, counts)}"
