"""How fast is the closed loop? Packets per CPU second, by congestion control, path and recording.

    python tests/bench/bench_simulate.py [--seconds 60]

Each row is the best of three runs; `ratio` is to the first row of the same run of this program, so
that machines and busy hours cancel out. Memory must not grow with the length of a run.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

from bbrscope.analyze.simulate.simulation import simulate
from bbrscope.analyze.simulate.world.worlds import of_path, path_of

_PASSES = 3
# Path, congestion controls of its flows, and whether each decision is recorded.
ROWS = (
    ("rate=100mbit,rtt=40ms", "v3", False),
    ("rate=100mbit,rtt=40ms", "v3", True),
    ("rate=100mbit,rtt=40ms", "v2", False),
    ("rate=100mbit,rtt=40ms", "v1", False),
    ("rate=100mbit,rtt=40ms", "cubic", False),
    ("rate=100mbit,rtt=40ms,loss=1%", "v3", False),
    ("rate=100mbit,rtt=40ms", "v1,v2,v3,cubic", False),
    ("rate=1gbit,rtt=40ms", "v3", False),
)


def _run(path: str, controls: str, record: bool, seconds: float) -> tuple[int, float]:
    """Segments sent, and CPU seconds."""
    setup = of_path(path_of(path), controls, round(seconds * 1e6), 1)
    before = time.process_time()
    outcome = simulate(setup, (lambda *_rows: None) if record else None)
    return int(outcome.flows["sent_segs"].sum()), time.process_time() - before


def _packets_per_second(path: str, controls: str, record: bool, seconds: float) -> float:
    _run(path, controls, record, 0.1)  # compiles, or loads what is compiled
    runs = [_run(path, controls, record, seconds) for _ in range(_PASSES)]
    return max(segments / cpu for segments, cpu in runs)


def bench_rates(seconds: float) -> None:
    print(f"{'path':32} {'flows':15} {'recorded':9} packets/s  ratio")
    first = 0.0
    for path, controls, record in ROWS:
        rate = _packets_per_second(path, controls, record, seconds)
        first = first or rate
        said = "yes" if record else "no"
        print(f"{path:32} {controls:15} {said:9} {rate / 1e6:7.2f} M  {rate / first:5.2f}")


def bench_memory(seconds: float) -> None:
    """The resident set after runs ten times and a hundred times as long as the first one."""
    setup = of_path(path_of("rate=10mbit,rtt=40ms"), "v3", round(seconds * 1e6), 1)
    for times in (1, 10, 100):
        simulate(replace(setup, duration_us=min(times * setup.duration_us, 7200 * 10**6)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"after {times * seconds:.0f} s simulated: {peak:.0f} MiB at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    bench_rates(options.seconds)
    bench_memory(options.seconds)


if __name__ == "__main__":
    main()
