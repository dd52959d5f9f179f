#!/usr/bin/env python3
"""What the probes cost inside the kernel, by its own BPF run times: root, this host, tcp_probe.

    python tests/bench/probe_cost.py [MORE.bt ...]

The same loopback flow is sent beside each program: a count alone, a one-line script on
tcp:tcp_probe, and what `collect` writes for this host as it is, for 1 flow of 100,000 and for
phase changes; programs of one's own are measured, too. Per run of the probe: time in the kernel
(BPF_ENABLE_STATS) and of bpftrace in user space. tests/bench/collect_cost.py measures the whole
recording in a guest, by instructions.

Measured on Linux 6.18, bpftrace 0.17, a busy machine of two CPUs: a count 0.2 us, one line 13.6 us
and 22 us in user space, the state 14.6 us and 23 us (1.1 times one line), a flow that --sample
leaves out 0.1 us, --phases 0.8 us. The same state in rows of one field per value takes 36 us and
40 us (2.6 times). What won: several fields per word (probes/shared_words.py), and so one row per
event in place of two or three. What lost: reading struct bbr by 64-bit words and printing its
fields 35 to 37 us, so it is values and rows that cost, not reads; buf() 23 to 24 us, but 65 us in
user space; bpftrace -B full saves nothing to speak of; a variable of a struct's type, in which
bpftrace 0.17 keeps the pointer, so that each field is read by itself as before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bbrscope.collect.record.cpu_limit import cpu_s
from bbrscope.collect.record.host import bpf_stats, bpftrace

MAIN = "from bbrscope.reports.cli import main; main()"
COLLECT = [sys.executable, "-c", MAIN, "collect", "--rung", "tcp_probe", "--print-probe"]
SHORT = {
    "count": "tracepoint:tcp:tcp_probe { @n = count(); }",
    "one line": 'tracepoint:tcp:tcp_probe { printf("%d %d\\n", pid, args->snd_cwnd); }',
}
OPTIONS = {"state": [], "left out": ["--sample", "1/100000"], "phases": ["--phases"]}
FLOW = """
iperf3 -s -p 5399 -1 > /dev/null & sleep 0.3
iperf3 -c 127.0.0.1 -p 5399 -b 20M -l 1000 -t 4 -C bbr > /dev/null; wait
"""


def runs(pid: int) -> dict[int, tuple[int, int]]:
    """Runs so far and their time [ns], per program."""
    return {p["prog_id"]: (p["run_cnt"], p["run_time_ns"]) for p in bpf_stats.programs(pid)}


def measure(name: str, program: Path) -> None:
    """Send the flow beside a program, and print what a run of its busiest probe took."""
    words = ["bpftrace", "-B", "line", str(program)]
    environment = bpftrace.environment(64 << 20, False)
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, env=environment, preexec_fn=bpftrace.prepare
    ) as process:
        while not runs(process.pid) and process.poll() is None:
            time.sleep(0.3)
        time.sleep(2)
        before, user_s = runs(process.pid), cpu_s(process.pid)
        subprocess.run(["sh", "-c", FLOW], check=True)
        time.sleep(1)
        after, user_s = runs(process.pid), cpu_s(process.pid) - user_s
        process.send_signal(signal.SIGINT)
    spent = [(t - before[p][1], n - before[p][0]) for p, (n, t) in after.items() if p in before]
    time_ns, count = max(spent)
    print(f"{name:<12}{time_ns / count / 1000:8.2f} us{1e6 * user_s / count:8.1f} us", flush=True)


def main() -> None:
    counting = bpf_stats.enable()
    assert counting is not None, "needs root and Linux 5.8"
    print(f"{'per run':<12}{'kernel':>11}{'bpftrace':>11}")
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "program.bt"
        for kind, text in SHORT.items():
            program.write_text(text)
            measure(kind, program)
        for kind, options in OPTIONS.items():
            program.write_bytes(subprocess.check_output([*COLLECT, *options]))
            measure(kind, program)
    for path in sys.argv[1:]:
        measure(Path(path).stem, Path(path))
    os.close(counting)


if __name__ == "__main__":
    main()
