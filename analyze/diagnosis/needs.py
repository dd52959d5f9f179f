"""What a rule may need of a recording: how to see that it is there, and its name for people."""

from __future__ import annotations

from dataclasses import dataclass

from .tables import Prepared


@dataclass(frozen=True)
class Need:
    """`sql` is a condition over the tables of `tables.TABLES`; `words` name what is needed.

    They complete the sentence "not checked: needs ...".
    """

    sql: str
    words: str


# Counts, not EXISTS: of many runs, DuckDB numbers all rows of each to find out whether it has one.
def _has(table: str, column: str = "*") -> str:
    """Return the condition that a run has rows in one of the ``this_`` tables, or such values."""
    return f"(SELECT count({column}) > 0 FROM this_{table})"


def _stores(table: str, column: str = "*") -> str:
    """Return the same condition for a table of the store."""
    of_run = "WHERE run_id = (SELECT run_id FROM this_run)"
    return f"(SELECT count({column}) > 0 FROM {table} {of_run})"


def _fact(scope: str, name: str) -> str:
    return f"EXISTS (FROM this_facts WHERE scope = '{scope}' AND name = '{name}')"


NEEDS = {
    "state": Need(_has("events", "mode"), "the state of struct bbr"),
    "decisions": Need(_stores("decisions"), "a replay (bbrscope replay RUN)"),
    "rtt": Need(_has("events", "rtt_us"), "RTT samples"),
    "samples": Need(_has("events", "sample_bw"), "rate samples"),
    "losses": Need(_stores("events", "tp_lost"), "counts of lost packets (tp.lost)"),
    "ce": Need(
        f"{_has('events', 'ecn_ok')} OR {_stores('packets')}",
        "TCP's ECN flags, or a packet capture",
    ),
    "queue": Need("(SELECT count(*) >= 10 FROM this_queue)", "samples of the bottleneck's queue"),
    "link": Need(
        _has("events", "capacity"),
        "the bottleneck's rate (setup.rate in the manifest, or a sampled queue that held packets)",
    ),
    "others": Need(
        "(FROM this_others)",
        "a packet capture, or a set-up that states its flows, which tell of other senders",
    ),
    "company": Need(
        "(FROM this_others) OR (SELECT count(*) > 1 FROM this_flows)",
        "a second recorded flow, a packet capture, or a set-up that states its flows, which tell "
        "of other senders",
    ),
    "qdiscs": Need(_fact("host", "qdiscs"), "the sender's queue disciplines (host.qdiscs)"),
    "offloads": Need(_fact("host", "offloads"), "the sender's offloads (host.offloads)"),
    "tcp_wmem": Need(_fact("sysctls", "net.ipv4.tcp_wmem"), "the sysctl net.ipv4.tcp_wmem"),
    "kernel": Need("(SELECT kernel IS NOT NULL FROM this_run)", "the kernel's version"),
}


def lacking(tables: Prepared) -> dict[int, set[str]]:
    """Return the needs that each run's recording does not meet."""
    met = ", ".join(f'coalesce({need.sql}, false) AS "{name}"' for name, need in NEEDS.items())
    there = tables.ask(f"SELECT {met}", tables.run_ids)
    return {run_id: {name for name in NEEDS if not row[name]} for run_id, row in there}
