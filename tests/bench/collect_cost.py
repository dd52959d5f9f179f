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
cheap and waking is dear, all rows take 1.5 to 2.5 times one line (tests/bench/probe_cost.py).

Fewer reads would not do, either. Of 3,274 calls of main() of fixtures/v1_x_lt, 12 of the 80 fields
at the entry are what they were at the call before in more than 999 of 1,000, and 42 in more than
900. To know that one has changed it must be read, and what it was looked up. Five change only where
a user or the path's MTU changes them (tp.mss_cache, tp.snd_cwnd_clamp, sk_max_pacing_rate,
sk_pacing_shift, sk_gso_max_size), and two follow from others (rs.delivered is tp.delivered less
rs.prior_delivered, tp.tcp_mstamp is tp.tcp_clock_cache in us): by 0.17 us a read that is 1.2 of 22
us, 4.2 for 4.5 times one line, and what proves the others right would be gone.

On trixie (bpftrace 0.23, which prints main()'s entry as two rows) by the kernel's own run times:
one line 3.9 us a run; entry 16.0 us and exit 1.8 us, together 4.5 times one line. From variants of
the entry, in us: one row without values 6.1; two rows of 38 constants 6.8, so that the second row
costs next to nothing and the reads are what is left, 9.2; struct bbr and the rate sample as two
buf() and no other value 6.8; the fields of tcp_sock alone 10.0; struct bbr as buf() and the rest as
today 14.2; args.rs->FIELD in place of a cast pointer 14.0, as this bpftrace loads these fields
directly. bpftrace itself takes 209 us a call (one line: 35), with one buf() 712 us, with two
1,139 us: what the kernel saves is lost there many times over. A row longer than 256 bytes is not to
be had on the stack, and a copy of struct bbr in a map beside it exceeds the stack.
Attaching takes 10 to 13 virtual seconds there, of a CPU of 500 MIPS.

What would win there, in one boot, paced loopback at 3 Mbit/s, in us of entry and exit together and
of bpftrace in user space: one line 4.7 and 30; today 18.5 and 193, 3.9 times one line; struct bbr
as an array of words in a printed tuple, print(("M2", $at, (uint64)$sk, $words->w)), which is one
read into the row itself, 16.6 and 180; struct bbr and the rate sample as two such arrays in one
tuple 13.3 and 173, 2.8 times one line; neither of them 12.9 and 106. (The run with both arrays had
347 calls, that with today's rows 1,503.) It is not built: bpftrace writes such rows in decimals and
brackets, "(M2, 1, 2, [3, 4])", which `collect` would have to turn into rows of events.csv. 0.17
compiles arrays in tuples, too, but has both the tuple and the row on its stack of 512 bytes, and
pays for each row. The fields of a variable $rs = args.rs or $sk = args.sk without a cast cost what
they cost with one: 18.4.

Tried since, in another boot: struct bbr and the rate sample as two such arrays in one tuple, the
other fields in a printf() before it, 20 values. 31 calls of the arrays, 33 of today's rows, 69 of
one line, too few to trust the last digits: entry 10.2 us for 13.2, exit 1.8 for 1.8, one line 2.9.
So 4.1 times one line for 5.2: a fifth less in the kernel, and three times is not shown. struct bbr
alone as an array, in a boot before that: entry 10.8 us for 12.2. In user space 645 us
for 909; in the boot before, with struct bbr alone, 1,111 for 741: so few calls say nothing of it.
As arrays of pointers, void *w[13], the words are printed in hexadecimal, "[0x3,0x4]", all 64 bits
exact, so that no number need be converted: brackets, spaces and 0x go, and packed columns read the
rest. Such recordings of a paced loopback flow on trixie, 51 events by fentry with --port and 52 by
kprobe with --port and --max-cpu, lost nothing, had every exit and replayed exactly in both modes.
It is not built: not tried are v2's and v3's longer structs and cgroups beside them on the stack of
512 bytes, where a row of arrays lies twice, and other versions than bpftrace 0.23; a program that
does not fit would attach nowhere.
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
