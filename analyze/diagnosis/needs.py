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


def _has(what: str) -> str:
    """Return the condition that a run's recording has it: a column of ``this_seen``."""
    return f"(SELECT {what} FROM this_seen)"


def _fact(scope: str, name: str) -> str:
    return f"EXISTS (FROM this_facts WHERE scope = '{scope}' AND name = '{name}')"


NEEDS = {
    "callbacks": Need(
        _has("callbacks"), "calls of BBR's functions (bbrscope collect by fentry or kprobe)"
    ),
    "state": Need(_has("state"), "the state of struct bbr"),
    "decisions": Need(_has("decisions"), "a replay (bbrscope replay RUN)"),
    "rtt": Need(_has("rtt"), "RTT samples"),
    "samples": Need(_has("samples"), "rate samples"),
    "timeouts": Need(
        _has("timeouts"),
        "the times of retransmission timeouts (bbrscope collect by fentry or kprobe)",
    ),
    "losses": Need(_has("losses"), "counts of lost packets (tp.lost)"),
    "ce": Need(
        f"{_has('ecn')} OR {_has('packets')}",
        "TCP's ECN flags, or a packet capture",
    ),
    "queue": Need(
        "(SELECT count(DISTINCT ns) >= 10 FROM this_queue)",
        "samples of a queue that flows are known to pass",
    ),
    "link": Need(
        _has("link"),
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
