"""Rows of table flows: what the events say, and whose addresses they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...probes.base.plurals import plural
from ..bundle.bundle import Bundle
from ..store.schema.recorded_tables import KINDS, SAMPLE
from .read_events import FlowInfo

if TYPE_CHECKING:
    import duckdb

RETRANSMITS = """
SELECT flow, sum(skb_gso_segs)::BIGINT FROM retransmits WHERE run_id = ? GROUP BY flow
"""


def retransmits(con: duckdb.DuckDBPyConnection, run_id: int) -> dict[int, int]:
    """Return how many packets each flow of a run sent again; its rows must be loaded."""
    return dict(con.execute(RETRANSMITS, [run_id]).fetchall())


def flow_rows(
    run_id: int,
    flows: list[FlowInfo],
    bundle: Bundle,
    counts: Mapping[int, Mapping[str, int]],
    again: Mapping[int, int] | None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of table flows.

    Args:
        counts: what the events of flows amount to, by flow and by the table's columns.
        again: retransmissions by flow; None: none were recorded.
    """
    local = _local_addresses(flows, bundle)
    nothing = dict.fromkeys(("events", *KINDS), 0)
    for flow in flows:
        address, source = local.get(flow.flow, (None, ""))
        counted = nothing | dict(counts.get(flow.flow, {}))
        yield {
            "run_id": run_id,
            "sk": flow.sk,
            "generation": flow.generation,
            "local_address": address,
            "local_port": flow.addresses.get("sport"),
            "remote_address": flow.addresses.get("daddr"),
            "remote_port": flow.addresses.get("dport"),
            "netns": flow.addresses.get("netns"),
            "cookie": flow.cookie,
            **counted,
            "flow": flow.flow,
            "has_init": flow.has_init,
            "pre_init": flow.pre_init,
            "retransmits": None if again is None else again.get(flow.flow, 0),
            "note": _note(flow, source, counted),
        }


def _note(flow: FlowInfo, source: str, counts: Mapping[str, int]) -> str | None:
    notes = []
    if not counts["events"]:
        notes.append("no whole event was recorded")
    # Samples never show init, wherever they begin.
    if not flow.has_init and counts["events"] > counts[SAMPLE]:
        notes.append("recording starts in the middle of this flow")
    if flow.pre_init:
        notes.append(f"{plural(flow.pre_init, 'event')} before init, on a zeroed state")
    if source:
        notes.append(f"local address from {source}")
    return "; ".join(notes) or None


def _local_addresses(flows: list[FlowInfo], bundle: Bundle) -> dict[int, tuple[str, str]]:
    """Return the local address of flows and, where it was not recorded, who else knew it.

    Init rows need not have the source address: then the other end's row or iperf3 tells it.
    """
    addresses: dict[int, tuple[str, str]] = {}
    ends = {_ends(flow): flow for flow in flows}
    clients = _iperf_connections(bundle)
    for flow in flows:
        sport, dport = _ends(flow)
        peer = ends.get((dport, sport))
        if "saddr" in flow.addresses:
            addresses[flow.flow] = (str(flow.addresses["saddr"]), "")
        elif sport is not None and peer is not None and "daddr" in peer.addresses:
            addresses[flow.flow] = (
                str(peer.addresses["daddr"]),
                f"flow {peer.flow}, its other end",
            )
        elif (sport, dport) in clients:
            addresses[flow.flow] = clients[sport, dport]
    return addresses


def _ends(flow: FlowInfo) -> tuple[str | int | None, str | int | None]:
    return flow.addresses.get("sport"), flow.addresses.get("dport")


def _iperf_connections(bundle: Bundle) -> dict[tuple[Any, Any], tuple[str, str]]:
    """Return the local address of each connection that an iperf3 output names, by its ports."""
    addresses: dict[tuple[Any, Any], tuple[str, str]] = {}
    for path in bundle.attachments():
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            for one in report["start"]["connected"]:
                ports = (one["local_port"], one["remote_port"])
                addresses[ports] = (str(one["local_host"])[:64], path.name)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return addresses
