#!/usr/bin/env python3
"""What recording costs per ACK, in a guest whose time is a count of instructions.

    python tests/bench/collect_cost.py [SUITE]

One 10 Mbit/s BBR flow is sent again and again in the same guest: without probes, with a one-line
bpftrace script on tcp:tcp_probe, and with the whole recording program. The guest's CPU time that
was not idle, divided by the ACKs, is compared. Under `-icount` one instruction takes 2 ns.

At last a loopback flow sends as fast as it can beside `bbrscope collect`, which must lose nothing:
the events per second are what a machine of one CPU and 500 MIPS sustains, printing included, and
the flow's own work too.

Measured with rows of one field per value, on bookworm (Linux 6.1, bpftrace 0.17): 101 us per ACK
for one line, 445 us for the recording, ratio 4.4; loopback 571 events/s, none lost. On trixie
(Linux 6.12, bpftrace 0.23): 98 us, 337 us, ratio 3.4; loopback 287 events/s, none lost.

With several fields per word (probes/shared_words.py), on bookworm, by the kernel's own run times:
one line 4.8 us a run; main()'s entry 17.3 us and its exit 4.6 us, together 4.5 times one line.
Where that goes, from variants of the entry attached side by side to one flow: reading its 54 fields
9.1 us, 0.17 us a call of bpf_probe_read_kernel(); waking bpftrace 2.9 us (whichever row is the
first of an ACK); the row itself with constants for values 3.7 us, one number alone 2.8 us; the
sequence number 1.1 us, the look for the end 0.3 us, the count of attempts 0.2 us.
What lost: fields of args->rs and args->sk without a cast, directly or by a variable, cost the same
(bpftrace 0.17 calls the helper for them, too). Neighbouring fields of 32 bits read as one word save
0.7 us at the entry on Linux 6.1, where eight fields of tcp_sock are neighbours, and nothing to be
seen on 6.18, where four are: not worth their code. buf() over struct bbr and tcp_sock would need
400 bytes of the stack's 512 with 0.17. So three times one line is out of reach here: without a
single read, the two rows with their accounts take 2.4 times. On a processor itself, where calls are
cheap and waking is dear, all rows take 1.2 to 2.3 times one line (tests/bench/probe_cost.py).

Fewer reads would not do, either. Of 3,274 calls of main() of fixtures/v1_x_lt, 12 of the 80 fields
at the entry are what they were at the call before in more than 999 of 1,000, and 42 in more than
900. To know that one has changed it must be read, and what it was looked up. Five change only where
a user or the path's MTU changes them (tp.mss_cache, tp.snd_cwnd_clamp, sk_max_pacing_rate,
sk_pacing_shift, sk_gso_max_size), and two follow from others (rs.delivered is tp.delivered less
rs.prior_delivered, tp.tcp_mstamp is tp.tcp_clock_cache in us): by 0.17 us a read that is 1.2 of 22
us, 4.2 for 4.5 times one line, and what proves the others right would be gone.

On trixie (Linux 6.12, bpftrace 0.23), when main()'s entry was two rows there, by the kernel's own
run times, variants attached side by side in one boot to the same paced loopback flow of 3 Mbit/s,
3,753 calls each, in us of entry and exit, their sum as a multiple of one line (4.6), and us of
bpftrace in user space (one line: 29):

    fields read through variables                            16.7   1.8   4.0   189
    the same without @seq, @attempted and @over              15.2   1.5   3.6   189
    args.rs->FIELD and args.sk->FIELD, loaded without a call 14.2   1.8   3.5   189
    the same, struct bbr as an array of words in a tuple     12.8   1.8   3.2   221
    struct bbr and the rate sample as two arrays in a tuple  12.7   1.8   3.2   226

The third is what the program does; its last rows were those of the first. The last two print
print(("M2", $at, (uint64)$sk, $words->w, $rs->w)) beside a printf() of the rest; void *w[13]
is printed in hexadecimal, exact. They are not built: they cost bpftrace a sixth more, need rows of
another form, and are not three times one line. With two ranges of tcp_sock as arrays in a second
tuple the program exceeds the stack of 512 bytes. In another flow, where each ran alone, two arrays
took 13.3 us, 2.8 times one line. buf() takes bpftrace 712 to 1,139 us a call. A row longer than 256
bytes is not to be had on the stack, and a copy of struct bbr in a map beside it exceeds the stack.
The fields of a variable $rs = args.rs or $sk = args.sk without a cast cost what they cost with one.

Since main()'s entry is one row there, too, in the buffer that its program alone uses: variants by
themselves, one after the other in one boot, beside a paced flow of 3 Mbit/s (2,253 ACKs each; us of
entry and exit, their sum as a multiple of one line of 4.65, us of bpftrace in user space and of its
system calls, by ticks of 10 ms; one line 24 and 7):

    two rows, as before                                      14.0   1.5   3.3   151   36
    one row, what the program does                           13.7   1.5   3.3   142   31
    one row, neighbours of 32 bits read as one word (four)   13.0   1.5   3.1   142   44
    one row, 408 bytes of socket and struct bbr in a map     12.5   1.5   3.0   151   27
    two rows, struct bbr by 6 ntop() and a word              13.2   1.5   3.2   173   36
    one row, the same                                        12.9   1.5   3.1   160   36
    one row of constants (of a second boot)                   7.4   1.5   1.9   146   36

A tick is 4.4 us an ACK. The fourth, @copy[cpu] = *(struct window *)..., just reaches 3.0;
its values were not checked, and on a processor such a copy of struct bbr alone cost more than the
reads that it saved (tests/bench/probe_cost.py; of this range it was not measured there). It and the
neighbours are not built. ntop() takes 16 bytes by one call, but inet_ntop() costs bpftrace more
than two numbers do. On bookworm, where the entry was one row before, an ACK's entry takes 16.2 us
with ntop() and 17.0 without, and user space with its system calls 245 us and 218.
Attaching takes 10 to 13 virtual seconds there, of a CPU of 500 MIPS.

From the start of the command to that of COMMAND, idle, trixie with two emulated CPUs took 18 s by
fentry and 14.6 by kprobe: Python 1.5 to 2.5, asking bpftrace what it can do 4.0, bpftrace itself 10
and 7.6. (Asked side by side it answers in 2.6, the plan of the probes included.) By strace of
the fentry program: 2.2 s until bpftrace has loaded itself, 1.8 in the kernel's BTF, 2.9 parsing C
(eight passes), 1.6 checking, 2.0 trying the kernel and generating code, 1.8 optimizing it and
writing it, 1.2 loading. What lost: structures of the program's own with the kernel's fields that it
reads, so that none come from BTF: a tenth less by kprobe, nothing by fentry.
On two processors themselves all of this is short: by tcp_probe COMMAND started after 3 s (8 s and
more with 0.17 while six other processes ran), and for the whole program by kprobe, written for
these kernels, bpftrace 0.23 needs 0.9 s and 0.17 4 s to the end of code generation beside them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bbrscope.collect import guest

SECONDS = 15
SCRIPT = f"""
. /opt/bbrscope/tests/collect/guest/bottleneck.sh
ip netns exec d iperf3 -s -D
sleep 1
busy() {{ read -r up idle < /proc/uptime; echo "$up $idle"; }}
acks() {{ ip netns exec s1 nstat -az TcpInSegs | awk '/TcpInSegs/ {{print $2}}'; }}
measure() {{
  first=$(busy) before=$(acks)
  ip netns exec s1 iperf3 -c 10.0.2.2 -t {SECONDS} > /dev/null
  echo "$1 $first $(busy) $(($(acks) - before))" >> /out/cost.txt
}}
attached() {{ for i in $(seq 100); do sleep 1; grep -q "$1" /tmp/rows && return; done; }}
line='tracepoint:tcp:tcp_probe {{ printf("%d %d\\n", pid, args->snd_cwnd); }}'
line="BEGIN {{ printf(\\"go\\\\n\\"); }} $line"
measure nothing
bpftrace -B line -e "$line" > /tmp/rows & tracer=$!
attached go; measure one_line; kill -INT $tracer; wait $tracer
bbrscope collect --print-probe > /tmp/probe.bt
bpftrace -B line /tmp/probe.bt > /tmp/rows & tracer=$!
attached +last; measure recording; kill -INT $tracer; wait $tracer
iperf3 -s -D
bbrscope collect -q --no-packets -o /tmp/fast -- iperf3 -c 127.0.0.1 -C bbr -t 5
cp /tmp/fast/manifest.json /out/
"""


def main() -> int:
    suite = sys.argv[1] if len(sys.argv) > 1 else "bookworm"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = guest.run(suite, SCRIPT, folder, 3600)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
        found = {}
        document = json.loads((folder / "manifest.json").read_text())
        for line in (folder / "cost.txt").read_text().splitlines():
            case, up0, idle0, up1, idle1, acks = line.split()
            busy_s = (float(up1) - float(up0)) - (float(idle1) - float(idle0))
            found[case] = (busy_s, int(acks))
    base_s = found["nothing"][0]
    costs = {}
    for case, (busy_s, acks) in found.items():
        costs[case] = 1e6 * (busy_s - base_s) / acks
        print(f"{case:<20}{busy_s:8.2f} s busy  {acks:7d} segments  {costs[case]:8.1f} us per ACK")
    start, end = (document["clocks"][point]["monotonic_ns"] for point in ("start", "end"))
    rate = 1e9 * document["completeness"]["events"] / (end - start)
    print(f"loopback: {rate:.0f} events/s, {document['events_lost']} rows lost")
    print(json.dumps({"suite": suite, "ratio": round(costs["recording"] / costs["one_line"], 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
