"""What rules ask of the parameters by which each flow ran.

Tables as those of `tables`, of which they are a part.
"""

from __future__ import annotations

from ..bbr.params import V3

# Those that v2 copies into each socket, where they are recorded (table params).
COPIED = (
    *("loss_thresh", "ecn_max_rtt_us", "min_rtt_win_sec", "probe_rtt_win_ms"),
    "cwnd_min_target",
)
# net.ipv4.tcp_plb_cong_thresh, a sysctl of v3's host.
_OF_THE_HOST = "plb_cong_thresh"
ASKED = (*COPIED, _OF_THE_HOST)


def _in_force(name: str) -> str:
    """SQL of a parameter's value; what a version does not have is as v3 has it."""
    copied = f"min(p.{name}), " if name in COPIED else ""
    stated = f"any_value(s.value) FILTER (s.name = '{name}')"
    return f"coalesce({copied}{stated}, {V3[name]}) AS {name}"


# Of each flow: its own value, else the host's or the simulation's (scope rules), else the default.
PARAMETERS = f"""
WITH stated AS (
  SELECT run_id, replace(name, 'net.ipv4.tcp_', '') AS name, try_cast(value AS INTEGER) AS value
  FROM these_facts
  WHERE scope = 'rules' OR (scope = 'sysctls' AND name = 'net.ipv4.tcp_{_OF_THE_HOST}')
)
SELECT c.run_id, c.flow, {", ".join(map(_in_force, ASKED))}
FROM these_chosen c LEFT JOIN stated s USING (run_id)
  LEFT JOIN params p ON p.run_id = c.run_id AND p.flow = c.flow
GROUP BY c.run_id, c.flow
"""
