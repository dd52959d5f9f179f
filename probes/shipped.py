"""The recording programs of this folder: bbr1.bt, bbr2.bt and bbr3.bt, for use by hand.

They are what `program.py` writes for a host with fentry and a bpftrace of 0.22 or newer, under a
header that explains them. `python -m bbrscope.probes.shipped` writes them again.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from . import known
from .attach import Attach, Host
from .bbr_versions import VERSIONS
from .program import Program

FOLDER = Path(__file__).parent
FILES = {"v1": "bbr1.bt", "v2": "bbr2.bt", "v3": "bbr3.bt"}
NAMES = {
    "v1": "BBR v1 (mainline, net/ipv4/tcp_bbr.c)",
    "v2": "BBR v2 (google/bbr v2alpha, net/ipv4/tcp_bbr2.c)",
    "v3": "BBR v3 (google/bbr v3, net/ipv4/tcp_bbr.c)",
}

# Rows as a kernel's were, cut short at the dots, and what they say.
EXAMPLES = {
    "v1": """\
M0,39022971611,ff4170cbc2c68000,3,38982923,1,1,40045,0,40045,40045,0,1,1,1,0,1,2,0,10,...
M1,39022987331,ff4170cbc2c68000,0,0,0,1,38982,0,0,0,0,0,0,1,0,0,38982923,0,0,0,0,0
X,39022992393,ff4170cbc2c68000,11,0,2147483647,1033234,4294902001,1002
An ACK arrived 39.022 s after boot and delivered one packet in 40045 us; BBR raised snd_cwnd
from 10 to 11 and left the pacing rate at 1033234 bytes/s.""",
    "v2": """\
M0,12204689550094,ff1100001a6b0940,1093,3614712553,1392,35,42400,42391,42400,42364,0,1,37,...
M1,12204689564642,ff1100001a6b0940,2,0,0,0,0,0,0,0,0,3,1,256,512,1,1,10,109,...
X,12204689578336,ff1100001a6b0940,40,0,34,1217668,2976126,1
An ACK arrived 12204.690 s after boot, delivered 1 packet and closed a sample of 35 packets in
42400 us; BBR raised snd_cwnd from 39 to 40 and left the pacing rate at 1217668 bytes/s.""",
    "v3": """\
M0,19230722060996,ff1100001a210900,1298,2050782622,1518,58,70250,67759,70250,69064,0,2,59,...
M1,19230722076658,ff1100001a210900,1518,19229110888,2,0,0,0,0,1,0,0,10,256,512,1,3,2,1,...
X,19230722091612,ff1100001a210900,72,0,35,1218096,4732638,1
An ACK arrived 19230.722 s after boot, delivered 2 packets and closed a sample of 58 packets in
70250 us; BBR cut snd_cwnd from 73 to 72 and left the pacing rate at 1218096 bytes/s.""",
}

HEADER = """\
#!/usr/bin/env bpftrace
/*
 * {file}  Record every input of every decision of {name}.
 *
 * Generated: probes/program.py wrote the program and probes/shipped.py this header, from the table
 * of fields (probes/fields.csv) and the layout of struct bbr (probes/known.csv). Change those, and
 * write it again: python -m bbrscope.probes.shipped
 *
 * PURPOSE
 *   Only these callbacks write struct bbr:
{callbacks}
 *   Each is recorded with the socket and the whole struct bbr before it, so that the rows determine
 *   the state exactly: a replay of them must agree with the kernel bit for bit.
 *
 * RUN
 *   bpftrace -B line {file} > raw
 *   "+first" and "+last" among the rows: every probe is attached, traffic may start. SIGURG ends
 *   the recording in the kernel: pkill -URG bpftrace, wait for the second "+over" in raw, and
 *   then Ctrl-C; bpftrace forgets at Ctrl-C what it has not printed yet.
 *   A bundle for bbrscope ingest (manifest.json is described in collect/bundle/BUNDLE.md):
 *   grep -E '^#?[A-Z]+[0-9]?,' raw | LC_ALL=C sort -s -t, -k2,2n | zstd > RUN/events.csv.zst
 *   Settings for busy hosts: BPFTRACE_PERF_RB_PAGES=8192 (rows on their way), and
 *   BPFTRACE_MAX_MAP_KEYS=65536 (sockets).
 *   Needs root, BTF, fentry and bpftrace 0.22 or newer;
 *   {module}.
 *   From Linux 7.2 on bbr_cwnd_event is bbr_cwnd_event_tx_start(sk) and stands for event 0.
 *   `bbrscope collect --print-probe` writes the same for this very host: kprobes where there is no
 *   fentry, the keywords of bpftrace 0.17, the struct as the host has it, filters.
 *
 * ROWS
 *   "#TAG,columns" names the columns of "TAG,values". ns is CLOCK_MONOTONIC, sk the socket's
 *   address; rows of one event have one time. seqno counts the socket's events and is taken under
 *   the socket lock: it gives the order, and a number that never comes is a lost event. Rows too
 *   long for one are split: M0 M1.
 *     M  main(): rate sample and state on an ACK     X  what main() left, and the socket cookie
 *     I  init(): addresses, ports (network order)    IX the first full state{params}
 *     S  set_state(new_state)                        E  cwnd_event(event)
 *     H  ssthresh()                                  U  undo_cwnd()
 *     {loss}  R  a retransmission
 *     N  who a socket is that is older than the recording
 *   At its end bpftrace prints @attempted_TAG, how many events it tried to print: what is missing
 *   from the rows was lost on the way.
 *
 * COST
 *   Measured for v1 in a guest that takes 2 ns per instruction (tests/bench/collect_cost.py): 21 to
 *   26 us per ACK inside the kernel's path, some 12,000 instructions; with the printing in user
 *   space 445 us with bpftrace 0.17 (Linux 6.1) and 337 us with 0.23 (Linux 6.12), that is 4.4 and
 *   3.4 times a one-line script on tcp:tcp_probe. Filter sockets on busy hosts.
 *
 * BLIND SPOTS
 *   fentry misses nothing; a kprobe is skipped without a trace while the same CPU is inside another
 *   one or in a bpf() map call. jiffies may tick between entry and use. The last event of a socket
 *   has no successor: its state after is known only for main() and init(). Packets themselves,
 *   sysctls and build constants (HZ, GSO_MAX_SIZE) are not here: `bbrscope collect` adds them.
 *
 * EXAMPLE
{example}
 */
"""


def text(version: str) -> str:
    """A shipped program, header included."""
    host = Host(known.layout(version), known.CB, marks=True)
    parameters = ("sk", "rs") if version == "v2" else ("sk", "ack", "flag", "rs")
    attach = Attach("fentry", module=_module(version), parameters=parameters, raw=True)
    return header(version) + "\n" + Program(VERSIONS[version], host, attach).text()


def header(version: str) -> str:
    """The comment that explains a shipped program."""
    kind = VERSIONS[version]
    loaded = "tcp_bbr must be loaded; write vmlinux for tcp_bbr if it is built in"
    built_in = f"where BBR is a module, write {kind.module} for vmlinux"
    lost = (
        "L  skb_marked_lost(): the skb as sent        "
        if kind.skb_marked_lost
        else "K  a packet was marked lost (by the core)    "
    )
    return HEADER.format(
        file=FILES[version],
        name=NAMES[version],
        callbacks=_in_comment(", ".join(kind.functions) + "."),
        module=loaded if _module(version) else built_in,
        params=", P the module's parameters" if version == "v2" else "",
        example="\n".join(f" *   {line}" for line in EXAMPLES[version].splitlines()),
        loss=lost,
    )


def _module(version: str) -> str:
    """v1 is a module on distribution kernels; the patched kernels of v2 and v3 have it built in."""
    return VERSIONS[version].module if version == "v1" else ""


def _in_comment(words: str) -> str:
    """Fill lines of a header, of at most 100 columns."""
    return textwrap.fill(words, 100, initial_indent=" *   ", subsequent_indent=" *   ")


def main() -> None:
    """Write all of them."""
    for version, file in FILES.items():
        (FOLDER / file).write_text(text(version))


if __name__ == "__main__":
    main()
