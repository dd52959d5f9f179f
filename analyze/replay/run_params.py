"""Which parameters a recorded flow ran with: the kernel's defaults, unless recorded otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...collect.ingest.run_facts import param_column
from ...collect.store.query import listed, rows
from ...probes.base.errors import BbrscopeError
from ..bbr import params
from .parameter_settings import apply_settings, can_be

if TYPE_CHECKING:
    import duckdb

# Of a run, a flow, and parameters common to the run's flows: the flow's own.
OfFlow = Callable[[int, int, dict[str, Any]], dict[str, Any]]

_TRUE = frozenset({"Y", "y", "1", "true", "True"})
_FALSE = frozenset({"N", "n", "0", "false", "False"})

# Of the recorded settings, those that are read here.
_SCOPES = ("constants", "module_params", "sysctls", "rules")

# v2alpha reads these module parameters on every call; all others are copied per socket by init.
_V2_LIVE = {
    f"tcp_bbr2.{name}": name
    for name in ("ecn_enable", "min_tso_rate", "extra_acked_max_us", "ack_epoch_acked_reset_thresh")
}

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


def recorded_settings(
    con: duckdb.DuckDBPyConnection, run_ids: Iterable[int]
) -> dict[int, dict[str, dict[str, int]]]:
    """The recorded settings of runs that are numbers, by run, scope and name."""
    found: dict[int, dict[str, dict[str, int]]] = {run_id: {} for run_id in run_ids}
    recorded = con.execute(
        "SELECT run_id, scope, name, value FROM host_facts"
        f" WHERE run_id IN {listed(found)} AND scope IN {_SCOPES}"
    ).fetchall()
    for run_id, scope, name, value in recorded:
        numeric = None if value is None else number(value)
        if numeric is not None:
            found[run_id].setdefault(scope, {})[name] = numeric
    return found


def of_recorded(settings: Mapping[str, Mapping[str, int]], flavour: str) -> dict[str, Any]:
    """What `of_run` returns, or raises, of one of `recorded_settings`."""
    return _of_settings(lambda scope: settings.get(scope, {}), flavour)


def of_run(con: duckdb.DuckDBPyConnection, run_id: int, flavour: str) -> dict[str, Any]:
    """Parameters common to the run's flows.

    Args:
        flavour: key of analyze.bbr.params.DEFAULTS.

    Raises:
        BbrscopeError: HZ is not recorded: no time-out of BBR's could be replayed; or the run is a
            simulation whose manifest has a parameter (`rules`) that this bbrscope does not know.
    """
    return of_recorded(recorded_settings(con, [run_id])[run_id], flavour)


def of_manifest(manifest: Mapping[str, Any], flavour: str) -> dict[str, Any]:
    """The same of a recording under way, whose manifest says its settings.

    Raises:
        BbrscopeError: as `of_run`.
    """

    def settings(scope: str) -> dict[str, int]:
        """The manifest's settings of one scope that are numbers."""
        said = {name: number(str(value)) for name, value in (manifest.get(scope) or {}).items()}
        return {name: value for name, value in said.items() if value is not None}

    return _of_settings(settings, flavour)


def _of_settings(facts: Callable[[str], Mapping[str, int]], flavour: str) -> dict[str, Any]:
    """Parameters by the settings that `facts` has of each scope."""
    constants = facts("constants")
    values = dict(params.DEFAULTS[flavour]) | _build_constants(constants)
    if flavour == "v2":
        # v2alpha's TSO goal follows GSO_MAX_SIZE, which grew from 65536 to 524280 in 5.19
        values["gso_max_size"] = constants.get("GSO_MAX_SIZE", values["gso_max_size"])
        values |= _renamed(facts("module_params"), _V2_LIVE)
    elif flavour == "v3":
        values |= _renamed(facts("sysctls"), _V3_SYSCTLS)
    return apply_settings(values, _own_rules(facts("rules")))


def _own_rules(rules: Mapping[str, int]) -> Mapping[str, int]:
    """A simulation's own rules: what it ran that is not the version's default."""
    for name, value in rules.items():
        if not can_be(name, value):
            raise BbrscopeError(
                f"the recording's manifest has a rule that this bbrscope does not know: {name} ="
                f" {value}",
                "replay it with the bbrscope that wrote it, or a newer one",
            )
    return rules


def _build_constants(constants: Mapping[str, int]) -> dict[str, int]:
    """What the kernel's configuration fixed, of every version."""
    if constants.get("HZ", 0) <= 0:
        raise BbrscopeError(
            "the recording does not say the kernel's HZ, on which every timeout depends",
            'put {"HZ": 250} (grep CONFIG_HZ= of that kernel) into the manifest\'s constants',
        )
    return _renamed(constants, {"HZ": "HZ", "MAX_TCP_HEADER": "max_tcp_header"})


def _renamed(settings: Mapping[str, int], names: dict[str, str]) -> dict[str, int]:
    """The settings that `names` has, under the parameters' names."""
    return {name: settings[key] for key, name in names.items() if key in settings}


def of_flow(
    con: duckdb.DuckDBPyConnection, run_id: int, flow: int, run_values: dict[str, Any]
) -> dict[str, Any]:
    """The flow's own parameters: v2 keeps, and records, a copy in each socket (bbr_params)."""
    return of_flows(con, [run_id])(run_id, flow, run_values)


def of_flows(con: duckdb.DuckDBPyConnection, run_ids: Iterable[int]) -> OfFlow:
    """Return what `of_flow` says of any flow of these runs, by one query."""
    copies: dict[tuple[int, int], dict[str, int]] = {}
    for row in rows(con, f"SELECT * FROM params WHERE run_id IN {listed(run_ids)}"):
        recorded = {name: value for name, value in row.items() if value is not None}
        copies.setdefault((row["run_id"], row["flow"]), recorded)
    return lambda run_id, flow, run_values: _with_copies(run_values, copies.get((run_id, flow), {}))


def with_recorded(run_values: dict[str, Any], recorded: Mapping[str, int]) -> dict[str, Any]:
    """A flow's own parameters by the names of its recorded row, params.NAME."""
    return _with_copies(run_values, {param_column(name): n for name, n in recorded.items()})


def _with_copies(run_values: dict[str, Any], recorded: Mapping[str, int]) -> dict[str, Any]:
    """The run's parameters with the flow's copies, which have names of the table params."""
    known = set(params.PARAMS.names or ())
    values = run_values | {name: value for name, value in recorded.items() if name in known}
    gains = [recorded.get(f"pacing_gain_{i}") for i in range(8)]
    if None not in gains:
        values["pacing_gain"] = gains
    return values


def as_json(values: dict[str, Any]) -> str:
    """The parameters as the store keeps them."""
    return json.dumps(values, sort_keys=True)
