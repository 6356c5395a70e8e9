#!/usr/bin/env python3
"""Everything that docs/performance.md says in figures, in one run.

    benches/performance.py [--quick] [--only targets|alternatives] [--rounds N] [--seconds S]
                           [--no-install] [--transom PATH] [--print]

Builds Transom, runs every row of targets.py, then alternatives.py beside libfabric and UCX, and writes
both tables into docs/performance.md between its markers, and what they were made of into
docs/performance/. About twelve minutes; with --quick about three, for a look rather than for figures.
Needs two processors that nobody else uses. --print: to the terminal only.
"""

import argparse
import json
import os
import platform
import subprocess
import sys

import alternatives
import targets

ROOT = alternatives.ROOT
PAGE = os.path.join(ROOT, "docs", "performance.md")
OUT = os.path.join(ROOT, "docs", "performance")


def put(name, text):
    """Replace what stands between the markers of the page."""
    begin, end = f"<!-- {name}: written by benches/performance.py -->", f"<!-- /{name} -->"
    page = open(PAGE, encoding="utf-8").read()
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{PAGE}: no markers for {name}")
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def processor():
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine():
    """Where it was measured."""
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        congestion = file.read().strip()
    kernel = platform.release().split("-")[0]
    return f"{os.cpu_count()} processors ({processor()}), Linux {kernel}, congestion control {congestion}"


def build():
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "transom-cli"], cwd=ROOT, check=True)
    return os.path.join(ROOT, "target", "release", "transom")


def run_targets(binary, seconds, to_page):
    results = targets.measure(binary, seconds)
    frames = sorted({found["largest_frame"] for row, found in results if found and "--path tcp" in row.title()})
    text = targets.table(results)
    text += f"\n\n{machine()}; {seconds:g} s for each side of a row, in 15 pairs; frames over TCP up to {max(frames, default=0)} bytes."
    if not to_page:
        return print(text)
    put("targets", text)
    facts = [{"command": " ".join(["transom"] + row.command("", seconds)[1:]), "result": found} for row, found in results]
    with open(os.path.join(OUT, "targets.json"), "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), "rows": facts}, file, indent=1)
        file.write("\n")


def run_alternatives(binary, rounds, to_page):
    text = alternatives.measure(binary, rounds, OUT if to_page else None)
    if to_page:
        put("alternatives", text)
    else:
        print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["targets", "alternatives"])
    parser.add_argument("--rounds", type=int, help="of the alternatives (7; 1 with --quick)")
    parser.add_argument("--seconds", type=float, help="of each side of a target (3; 0.6 with --quick)")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--transom", help="a built command (default: build one)")
    parser.add_argument("--print", action="store_true")
    options = parser.parse_args()
    if not options.no_install:
        alternatives.install()
    binary = options.transom or build()
    if options.only != "alternatives":
        run_targets(binary, options.seconds or (0.6 if options.quick else 3), not options.print)
    if options.only != "targets":
        run_alternatives(binary, options.rounds or (1 if options.quick else 7), not options.print)


if __name__ == "__main__":
    sys.exit(main())
