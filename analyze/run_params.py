"""Which parameters a recorded flow ran with: the kernel's defaults, unless recorded otherwise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..collect.errors import BbrscopeError
from ..collect.query import rows
from .bbr import params

if TYPE_CHECKING:
    import duckdb

_TRUE = frozenset({"Y", "y", "1", "true", "True"})
_FALSE = frozenset({"N", "n", "0", "false", "False"})

# v2alpha reads these module parameters on every call; all others are copied per socket by init.
_V2_LIVE = ("ecn_enable", "min_tso_rate", "extra_acked_max_us", "ack_epoch_acked_reset_thresh")

# Network-namespace settings that v3 reads, by the record's name.
_V3_SYSCTLS = {
    "net.ipv4.tcp_min_tso_segs": "min_tso_segs",
    "net.ipv4.tcp_plb_enabled": "plb_enabled",
    "net.ipv4.tcp_plb_cong_thresh": "plb_cong_thresh",
    "net.ipv4.tcp_plb_rehash_rounds": "plb_rehash_rounds",
    "net.ipv4.tcp_plb_idle_rehash_rounds": "plb_idle_rehash_rounds",
    "net.ipv4.tcp_plb_suspend_rto_sec": "plb_suspend_rto_sec",
}


def number(text: str) -> int | None:
    """A recorded setting as an integer; Y and N are 1 and 0, None if it is neither."""
    text = text.strip()
    if text in _TRUE:
        return 1
    if text in _FALSE:
        return 0
    try:
        return int(text)
    except ValueError:
        return None


def _facts(con: duckdb.DuckDBPyConnection, run_id: int, scope: str) -> dict[str, int]:
    rows = con.execute(
        "SELECT name, value FROM host_facts WHERE run_id = ? AND scope = ?", [run_id, scope]
    ).fetchall()
    found = {name: number(value) for name, value in rows if value is not None}
    return {name: value for name, value in found.items() if value is not None}


def of_run(con: duckdb.DuckDBPyConnection, run_id: int, flavour: str) -> dict[str, Any]:
    """Parameters common to the run's flows.

    Args:
        flavour: key of analyze.bbr.params.DEFAULTS.

    Raises:
        BbrscopeError: HZ is not recorded: no time-out of BBR's could be replayed.
    """
    values = dict(params.DEFAULTS[flavour])
    constants = _facts(con, run_id, "constants")
    if constants.get("HZ", 0) <= 0:
        raise BbrscopeError(
            "the recording does not say the kernel's HZ, on which every timeout depends",
            'put {"HZ": 250} (grep CONFIG_HZ= of that kernel) into the manifest\'s constants',
        )
    values["HZ"] = constants["HZ"]
    if "MAX_TCP_HEADER" in constants:
        values["max_tcp_header"] = constants["MAX_TCP_HEADER"]
    if flavour == "v2":
        # v2alpha's TSO goal follows GSO_MAX_SIZE, which grew from 65536 to 524280 in 5.19
        values["gso_max_size"] = constants.get("GSO_MAX_SIZE", values["gso_max_size"])
        module = _facts(con, run_id, "module_params")
        for name in _V2_LIVE:
            if f"tcp_bbr2.{name}" in module:
                values[name] = module[f"tcp_bbr2.{name}"]
    elif flavour == "v3":
        sysctls = _facts(con, run_id, "sysctls")
        values |= {name: sysctls[key] for key, name in _V3_SYSCTLS.items() if key in sysctls}
    return values


def of_flow(
    con: duckdb.DuckDBPyConnection, run_id: int, flow: int, run_values: dict[str, Any]
) -> dict[str, Any]:
    """The flow's own parameters: v2 keeps a copy in each socket (struct bbr_params)."""
    values = dict(run_values)
    if values["version"] != 2:
        return values
    found = rows(con, "SELECT * FROM params WHERE run_id = ? AND flow = ? LIMIT 1", run_id, flow)
    if not found:
        return values
    known = set(params.PARAMS.names or ())
    recorded = {name: value for name, value in found[0].items() if value is not None}
    values |= {name: value for name, value in recorded.items() if name in known}
    gains = [recorded.get(f"pacing_gain_{i}") for i in range(8)]
    if None not in gains:
        values["pacing_gain"] = gains
    return values


def as_json(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)
