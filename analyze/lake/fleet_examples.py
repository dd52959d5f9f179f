"""Questions to a lake that users may go on from: on the page of a fleet, and in README.md here."""

from __future__ import annotations

# What each asks, and its SQL.
EXAMPLES = (
    (
        "Findings by what they cost, per host",
        """\
SELECT host, name, sum(cost_s) AS seconds, count(DISTINCT run_id) AS runs
FROM findings JOIN lake_runs USING (run_id) GROUP BY ALL ORDER BY seconds DESC""",
    ),
    (
        "Bytes that flows could have carried, by the limit that kept them from it",
        """\
SELECT version, binding, sum(short_bytes) / 1e6 AS mb FROM flow_limits JOIN runs USING (run_id)
GROUP BY ALL ORDER BY mb DESC""",
    ),
    (
        "Runs in which the replay differs from the kernel",
        """\
SELECT run, host, day, compared - exact AS events FROM lake_runs WHERE exact < compared""",
    ),
)
