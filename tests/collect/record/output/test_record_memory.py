"""Memory stays flat for hours: a stream of six hours goes through the recorder in a child."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HOURS, PER_SECOND = 6, 24
GROWN_KIB = 12_000

# Rows of a second at a time, as bpftrace would print them; memory is told after every half hour.
CHILD = """
import json, os, sys
from pathlib import Path
from bbrscope.collect.record.output import check
from bbrscope.collect.record.output.stream import Compressed, Events

hours, per_second, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

source, sink = os.pipe()
output = Compressed(path)
events = Events(source, output)
events.accept(b"#M0,ns,sk,seqno,tp.delivered,tp.mss_cache,rs.acked_sacked\\n#M1,ns,sk,bbr.mode\\n")
events.accept(b"#X,ns,sk,tp.snd_cwnd\\n")
seen, number = [], 0
for second in range(hours * 3600):
    lines = []
    for i in range(per_second):
        ns, sk, number = second * 10**9 + i * 10**7 + 10**9, 0xff00 + 64 * (number % 5), number + 1
        event = number // 5
        lines.append(f"M0,{ns},{sk:x},{event},{event},1448,1\\nM1,{ns + 900},{sk:x},2\\n"
                     f"X,{ns + 1800},{sk:x},10\\n")
    events.accept("".join(lines).encode())
    if second % 1800 == 1799:
        seen.append(resident())
events.accept_end()
output.close()
found = check.check(path)
print(json.dumps({"resident": seen, "after_check": resident(), "rows": dict(events.rows),
                  "events": found.events, "missing": found.sequence_missing,
                  "breaks": found.chain_breaks}))
"""


def test_a_recording_of_hours_takes_no_more_memory_than_one_of_half_an_hour(tmp_path: Path) -> None:
    words = [str(HOURS), str(PER_SECOND), str(tmp_path / "events.csv.zst")]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    total = HOURS * 3600 * PER_SECOND
    assert measured["rows"] == {"M0": total, "M1": total, "X": total}
    assert (measured["events"], measured["missing"], measured["breaks"]) == (total, 0, 0)
    first, *later = measured["resident"]
    assert max(later) - first < GROWN_KIB
    assert measured["after_check"] - first < GROWN_KIB
