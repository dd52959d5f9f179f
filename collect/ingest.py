"""Load run bundles into the store."""

from __future__ import annotations

import json
from pathlib import Path

from . import layout
from .schema.fields import EVENT_FIELDS, EXIT_FIELDS, PARAMS, column_name, exit_column_name
from .store import Store

KIND = {"M": "main", "S": "set_state", "E": "cwnd_event", "H": "ssthresh", "U": "undo_cwnd"}
KIND["L"] = "skb_marked_lost"


def ingest(store: Store, folder: Path) -> None:
    import pyarrow as pa
    import zstandard

    manifest = json.loads((folder / "manifest.json").read_text())
    with open(folder / "events.csv.zst", "rb") as raw:
        text = zstandard.ZstdDecompressor().stream_reader(raw).read().decode()
    heads: dict[str, list[str]] = {}
    open_event: dict[str, dict] = {}
    flow_of: dict[str, int] = {}
    has_init: set[int] = set()
    flows: list[dict] = []
    events: list[dict] = []
    params: list[dict] = []
    run_id = store.con.execute("SELECT coalesce(max(run_id), 0) + 1 FROM runs").fetchone()[0]
    known = {f.name for f in EVENT_FIELDS}
    exits = {f.name for f in EXIT_FIELDS}
    for number, line in enumerate(text.splitlines(), 1):
        tag, *values = line.split(",")
        if line.startswith("#"):
            heads[tag[1:]] = values
            continue
        if tag not in heads:
            continue
        row = dict(zip(heads[tag], values, strict=True))
        sk = row["sk"]
        base = tag.rstrip("0123456789")
        if tag in ("I", "M0", "S0", "E0", "H0", "U0", "L0"):
            if sk not in flow_of or (tag == "I" and flow_of[sk] in has_init):
                flows.append({"run_id": run_id, "flow": len(flows) + 1, "sk": sk})
                flow_of[sk] = len(flows)
            if tag == "I":
                has_init.add(flow_of[sk])
            event = {"run_id": run_id, "flow": flow_of[sk], "ns": int(row["ns"]), "line": number}
            event |= {"kind": KIND.get(base, "init"), "complete": False, "parts": {tag}}
            event |= {column_name(k): int(v) for k, v in row.items() if k in known}
            open_event[sk] = event
            events.append(event)
            continue
        event = open_event.get(sk)
        if event is None:
            continue
        event["parts"].add(tag)
        if base in ("X", "IX"):
            if tag != "IX1":
                event["exit_ns"] = int(row["ns"])
                event["complete"] = base == "X"
                event |= {exit_column_name(k): int(v) for k, v in row.items() if k in exits}
            event |= {column_name(k): int(v) for k, v in row.items() if k.startswith("bbr.")}
            event["complete"] |= tag == "IX1"
        elif base == "P":
            row = {column_name(k).removeprefix("params_"): v for k, v in row.items()}
            row.pop("sk")
            params.append(
                {"run_id": run_id, "flow": event["flow"]} | {k: int(v) for k, v in row.items()}
            )
        else:
            event |= {column_name(k): int(v) for k, v in row.items() if k in known}
            event["complete"] |= base not in ("M", "I")
    seqs: dict[int, int] = {}
    kept = []
    for event in events:
        parts = event.pop("parts")
        if event["kind"] != "init" and not any(p.endswith("1") for p in parts):
            continue
        event["seq"] = seqs[event["flow"]] = seqs.get(event["flow"], -1) + 1
        kept.append(event)
    decided = layout.decide({name for head in heads.values() for name in head}, manifest)
    names = list(dict.fromkeys(k for event in kept for k in event))
    columns = {name: [event.get(name) for event in kept] for name in names}
    unsigned = [
        name for name in names if any((v or 0) > 2**63 for v in columns[name] if v.__class__ is int)
    ]
    event_rows = pa.table(
        {name: pa.array(columns[name], pa.uint64() if name in unsigned else None) for name in names}
    )
    with store.transaction() as con:
        con.execute("INSERT INTO events BY NAME SELECT * FROM event_rows")
        flow_rows = pa.Table.from_pylist(flows)
        con.execute("INSERT INTO flows BY NAME SELECT * FROM flow_rows")
        if params:
            param_rows = pa.Table.from_pylist(params)
            con.execute("INSERT INTO params BY NAME SELECT * FROM param_rows")
        con.execute(
            "INSERT INTO runs (run_id, run, version, decoded_as, hz) VALUES (?, ?, ?, ?, ?)",
            [run_id, manifest["name"], *vars(decided).values(), manifest["constants"]["HZ"]],
        )
        for scope in ("constants", "module_params", "sysctls"):
            for name, value in (manifest.get(scope) or {}).items():
                con.execute(
                    "INSERT INTO host_facts VALUES (?, ?, ?, ?)", [run_id, scope, name, str(value)]
                )
