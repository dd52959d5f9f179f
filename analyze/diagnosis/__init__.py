"""What is wrong with a flow, and what shows it: rules over the store, one file each.

A rule (``rules/<name>.toml``) is words and one query. The query answers with one row per flow that
has the trouble (columns: `rule.COLUMNS`, and the numbers that the rule's sentences name). A rule
runs only where it applies (version, number of flows) and where the recording has what it needs;
where not, that is said, so that silence means health and not blindness.

Five studies measured BBR: Song et al. (IEEE Access 2021), Cao et al. (IMC 2019), Lanigan (2020),
Gomez et al. (TSP 2020) and Ware et al. (IMC 2019). What they found, as symptoms in a trace, is a
catalogue of 37 findings, F-01 to F-37 (CATALOGUE.md); rules name those that they tell, and those
that no rule can tell from one run are in `NOT_RULES`.
"""

from __future__ import annotations

# Finding of the catalogue -> why the data of one run cannot show it.
NOT_RULES = {
    "F-06": "about CUBIC and Reno under random loss: their state is not recorded",
    "F-10": "a comparison with CUBIC on the same path: needs another run",
    "F-16": "a contest of v1 and v2: a recording tells one version's state, not who the other is",
    "F-23": "the loop of the ns-3 port, which probes every round trip; Linux waits 2 to 3 s",
    "F-30": "BBR' exists in ns-3 only",
    "F-31": "Delay-BBR exists in ns-3 only",
    "F-32": "BBR+ exists in ns-3 only",
    "F-35": "cumulative means over unequal lifetimes: `bbrscope metrics` never averages so",
}
