"""`collect --print-script`: a POSIX shell script that records a bundle where there is no Python.

The script holds the probes of all three versions for three rungs, as the newest bpftrace has them;
it finds out what the host has by asking (BTF, the keywords that bpftrace lists, programs that do or
do not compile), rewrites the probe with sed, and takes the first rung that attaches.
"""

from __future__ import annotations

from pathlib import Path

from ...probes import known
from ...probes.attach import LONGEST_TEXT, SHORT_TEXT, STACK_LIMIT, VALUES_IN_LIMIT, Attach, Host
from ...probes.bbr_versions import VERSIONS
from ...probes.program import Program

TEMPLATE = Path(__file__).with_name("collect.sh")
MODULE = "@MODULE@"
RUNGS = ("fentry", "kprobe", "tcp_probe")
# bpftrace measured once how far the wall clock is from boottime: the pair is as good as that, and
# the end says nothing of drift.
CLOCK = """\
  $now = nsecs;
  printf("+clock {point} %llu %llu %s\\n", $now, nsecs(monotonic), strftime("%s%f", $now));
"""


def script() -> str:
    """The whole script: collect.sh with the probes put in, per version and rung."""
    cases = [
        f"{rung}-{name}) cat <<'PROBE'\n{probe(name, rung)}PROBE\n;;\n"
        for name in VERSIONS
        for rung in RUNGS
    ]
    # For kernels before 5.11 with the bpftrace of their time.
    cases += [
        f"{rung}-v1-short) cat <<'PROBE'\n{probe('v1', rung, SHORT_TEXT)}PROBE\n;;\n"
        for rung in ("kprobe", "tcp_probe")
    ]
    return (
        TEMPLATE.read_text()
        .replace("@STACK_LIMIT@", str(STACK_LIMIT))
        .replace("@PROBES@\n", "".join(cases))
    )


def probe(name: str, rung: str, longest_text: int = LONGEST_TEXT) -> str:
    """A version's probe on one rung, as for x86 before Linux 6.10, with the module left open."""
    host = Host(known.layout(name), known.CB)
    # Written before it is known which bpftrace will run it: rows that each of them can build on the
    # stack; the script adds the setting where there is one.
    rows = VALUES_IN_LIMIT
    # Some kernels hide jiffies. Only a replay needs them, and of tcp_probe there is none.
    jiffies = "" if rung == "tcp_probe" else "jiffies"
    attach = Attach(
        rung,
        module=MODULE,
        parameters=("sk", "rs"),
        values_per_row=rows,
        jiffies=jiffies,
        longest_text=longest_text,
        stack_limit=0,
    )
    text = Program(VERSIONS[name], host, attach).text()
    for point, line in (("start", "BEGIN\n{\n"), ("end", "END\n{\n")):
        text = text.replace(line, line + CLOCK.format(point=point))
    return text
