"""`collect --print-script`: a POSIX shell script that records a bundle where there is no Python.

The script holds the probes of all three versions, in the newest bpftrace's words; it finds out what
the host has by asking (BTF, the keywords that bpftrace lists, programs that do or do not compile)
and rewrites the probe with sed. It uses fentry only.
"""

from __future__ import annotations

from pathlib import Path

from ...probes import known
from ...probes.columns import VERSIONS
from ...probes.program import VALUES_ON_STACK, Attach, Host, Program

TEMPLATE = Path(__file__).with_name("collect.sh")
MODULE = "@MODULE@"
# bpftrace measured once how far the wall clock is from boottime: the pair is as good as that, and
# the end says nothing of drift.
CLOCK = """\
  $now = nsecs;
  printf("+clock {point} %llu %llu %s\\n", $now, nsecs(monotonic), strftime("%s%f", $now));
"""


def script() -> str:
    """The whole script: collect.sh with the probes put in."""
    cases = [f"{name}) cat <<'PROBE'\n{probe(name)}PROBE\n;;\n" for name in VERSIONS]
    return TEMPLATE.read_text().replace("@PROBES@\n", "".join(cases))


def probe(name: str) -> str:
    """A version's probe with the module left open."""
    host = Host(known.layout(name), known.CB)
    parameters = ("sk", "rs") if name == "v2" else ("sk", "ack", "flag", "rs")
    # Written before it is known which bpftrace will run it: rows that the oldest can print.
    rows = VALUES_ON_STACK
    attach = Attach("fentry", module=MODULE, parameters=parameters, values_per_row=rows)
    text = Program(VERSIONS[name], host, attach).text()
    for point, line in (("start", "BEGIN\n{\n"), ("end", "END\n{\n")):
        text = text.replace(line, line + CLOCK.format(point=point))
    return text
