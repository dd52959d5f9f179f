#!/usr/bin/env python3
"""What the probes cost inside the kernel, by its own BPF run times: root, this host.

    python tests/bench/probe_cost.py [MORE.bt ...]
    python -m bbrscope.collect.guest bookworm --cpus 2 -- \\
      env RATE=3M python3 /opt/bbrscope/tests/bench/probe_cost.py

The same loopback flow is sent beside each program: a count alone, a one-line script on
tcp:tcp_probe, and what `collect` writes for this host: the recording by fentry or kprobe, or, where
there is neither, the state in one row at that tracepoint and, beside it, both rows that main()
prints on an ACK; and the same of 1 flow of 100,000, and of phase changes; programs of one's own are
measured, too. Per ACK: time in the kernel (BPF_ENABLE_STATS) and of bpftrace in user space, with
the flow as fast as it can, so that bpftrace is awake already, and paced, so that the first row of
an ACK wakes it. The second form measures in a guest under another kernel, for which RATE=3M is
enough: with 2 processors its clock is the host's. tests/bench/collect_cost.py measures the whole
recording in a guest, by instructions.

Measured on Linux 6.18 with two CPUs, paced and fast, in us in the kernel:

    bpftrace                 a count     one line     both rows    left out    --phases
    0.17.0 (Debian 12)     0.3   0.2   10.2   9.5   17.6  16.9    0.3   0.2    0.8  0.8
    0.23.2 (Debian 13)     0.2   0.1    6.4   4.0    8.9   4.7    0.4   0.3    1.2  1.1

So an ACK costs 1.2 to 2.3 times one line (seven runs, idle and busy): waking bpftrace is what
is dear, and the first row pays for it whatever it holds. In user space both rows take 6 to 44 us,
one line 4 to 27 us. A guest that counts instructions sees 4.5 times with Linux 6.1 and 3.3 with
6.12 (tests/bench/collect_cost.py): there waking is 2.9 of 22 us and reading 54 fields is 9, here
waking is 7 of 11 us and the reads are lost in the noise. In guests of two processors, by the
host's clock, all rows of a recording by fentry took, on an idle machine, paced 0.8 and 1.3 times
one line on Debian 13 and 1.7 to 3.1 times on Debian 12 (three runs), as waking the other processor
is 100 us and more there, and fast 3.3 and 4.1 times and 2.2 to 5.4: without waking, an emulated
processor is as its instructions are.

What won: several fields per word (probes/shared_words.py), and so one row per event in place of
two or three: rows of one field per value take 2.6 times one line. What lost: struct bbr printed
field by field after reading it by 64-bit words, 35 to 37 us, so it is values and rows that cost,
not reads; buf(), 23 to 24 us, but 65 us in user space; with 0.23 struct bbr and the rate sample as
two buf() in a row, 6.8 to 9.7 us paced and 2.1 to 2.5 us fast for 9.3 to 9.6 and 4.3 to 5.4 us, but
41 to 54 and 13 to 29 us in user space for 16 to 27 and 6 to 8; bpftrace -B full, which saves
nothing to speak of; a variable of a struct's type, in which bpftrace keeps the pointer (0.17 and
0.23), so that each field is read by itself as before. A copy in a map,
@copy[cpu] = *(struct window *)$sk, is one read and its fields are loads, but the map costs what
that saves: 3.0 to 3.2 us for 2.1 to 2.8 us with 0.23, fast; with 0.17 16 us for 17 us for struct
bbr alone, and a copy of tcp_sock does not fit on its stack of 512 bytes. A struct in a tuple is one
read, too, but 0.17 takes its fields for pointers, and 0.23 aborts.
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
from bbrscope.collect.record.host import bpf_stats, bpftrace, ladder, survey, target
from bbrscope.collect.record.plan import RecordingPlan
from bbrscope.probes.attach import Attach
from bbrscope.probes.program import Program

MAIN = "from bbrscope.reports.cli import main; main()"
COLLECT = [sys.executable, "-c", MAIN, "collect", "--print-probe"]
FLOW = """
iperf3 -s -p 5399 -1 > /dev/null & sleep 0.3
iperf3 -c 127.0.0.1 -p 5399 -C bbr $FLOW > /dev/null; wait
"""
RATE = os.environ.get("RATE", "20M")
FLOWS = {"paced": f"-b {RATE} -l 1000 -t 4", "fast": "-t 2"}
OPTIONS = {"left out": ["--sample", "1/100000"], "phases": ["--phases"]}


class AtTracepoint(Attach):
    """Attaches main()'s probes to tcp_probe; the rate sample is read from the socket's memory."""

    def point(self, _function: str, _is_exit: bool = False, _module: str = "") -> str:
        return self.trace("tcp_probe")[0]

    def read_argument(self, _name: str, _position: int) -> str:
        return self.trace("tcp_probe")[1]

    def members_of(self, name: str) -> str:
        return f"${name}"


class MainOnly(Program):
    """What runs on an ACK."""

    def probes(self) -> list[str]:
        return [self.main_exit(), self.main_entry(), self.destroyed_socket()]


def rows_of_main() -> dict[str, str]:
    """The recording, where its functions can be probed; else main()'s two rows at tcp_probe."""
    host = survey.survey(RecordingPlan(Path()))
    assert host.bpftrace, host.problems
    assert host.target
    assert host.types
    if any(step.usable and step.rung in ("fentry", "kprobe") for step in host.steps):
        return {"recording": subprocess.check_output(COLLECT, text=True)}
    state = {"state": subprocess.check_output(COLLECT, text=True)}
    attach = AtTracepoint(**vars(ladder.attach_with(host.bpftrace, host.target, "fentry")))
    kernel = target.program_host(host.target, host.types)
    return {"both rows": MainOnly(host.target.version, kernel, attach).text(), **state}


def one_line(tool: bpftrace.Bpftrace) -> dict[str, str]:
    """The short programs, as this bpftrace writes them."""
    line = f'printf("%d %d\\n", pid, {tool.argument}snd_cwnd);'
    return {
        name: f"tracepoint:tcp:tcp_probe {{ {text} }}"
        for name, text in {
            "count": "@n = count();",
            "one line": line,
        }.items()
    }


def runs(pid: int) -> dict[int, tuple[int, int]]:
    """Runs so far and their time [ns], per program."""
    return {p["prog_id"]: (p["run_cnt"], p["run_time_ns"]) for p in bpf_stats.programs(pid)}


def wait_until_loaded(process: subprocess.Popen[bytes]) -> None:
    """Return when bpftrace has loaded programs, and no more for some seconds, or has ended."""
    programs: set[int] = set()
    while process.poll() is None:
        time.sleep(3)
        known, programs = programs, set(runs(process.pid))
        if programs and programs == known:
            return


def measure(name: str, program: Path) -> None:
    """Send the flows beside a program, and print what a run of its probes took."""
    words = ["bpftrace", "-B", "line", str(program)]
    environment = bpftrace.environment(64 << 20, False)
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, env=environment, preexec_fn=bpftrace.prepare
    ) as process:
        wait_until_loaded(process)
        for kind, options in FLOWS.items():
            before, user_s = runs(process.pid), cpu_s(process.pid)
            subprocess.run(["sh", "-c", FLOW], check=True, env={**os.environ, "FLOW": options})
            time.sleep(1)
            after, user_s = runs(process.pid), cpu_s(process.pid) - user_s
            spent = [(n - before[p][0], t - before[p][1]) for p, (n, t) in after.items()]
            count, kernel_ns = max(spent)[0], sum(time_ns for _, time_ns in spent)
            row = f"{kernel_ns / count / 1000:8.2f} us{1e6 * user_s / count:8.1f} us"
            print(f"{name:<12}{kind:<8}{row}", flush=True)
        process.send_signal(signal.SIGINT)


def main() -> None:
    counting = bpf_stats.enable()
    assert counting is not None, "needs root and Linux 5.8"
    subprocess.run(["modprobe", "-q", "tcp_bbr"], check=False)  # where it is a module
    print(f"{'per ACK':<20}{'kernel':>11}{'bpftrace':>11}")
    programs = one_line(bpftrace.find()) | rows_of_main()
    for kind, options in OPTIONS.items():
        programs[kind] = subprocess.check_output([*COLLECT, *options], text=True)
    programs |= {Path(path).stem: Path(path).read_text() for path in sys.argv[1:]}
    with tempfile.TemporaryDirectory() as name:
        for kind, text in programs.items():
            path = Path(name) / "program.bt"
            path.write_text(text)
            measure(kind, path)
    os.close(counting)


if __name__ == "__main__":
    main()
