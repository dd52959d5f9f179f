"""A simulated run as an ordinary bundle, marked as simulated in its manifest."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import zstandard

from ...collect.bundle.bundle import EVENTS, FORMAT, MANIFEST, QUEUE, VERSION
from ...collect.bundle.manifest_values import NAME_HOLDS, RUN_NAME
from ...collect.bundle.numbers import MAX_NS
from ...probes.base.errors import ScenarioError
from ...probes.base.plurals import in_words
from ...probes.base.scratch import ScratchFolder
from ..bbr import params
from ..bbr.variants.catalogue import VARIANTS
from ..bbr.variants.own_variant import digest_of
from ..replay.parameter_settings import as_settings
from .described_path import as_words
from .fidelity_notes import statement
from .iperf_report import report
from .sender.estimator import EPOCH_NS
from .simulation import Simulated, goodput_mbps, simulate
from .world.world_setup import Setup, parameters_of
from .write_events import EventWriter

# Any date will do; a simulation has none.
_REALTIME_NS = 1_700_000_000 * 10**9

# What the flows beside BBR run by: Linux's rules, not those of an RFC.
_RULES = {
    "cubic": "Linux tcp_cubic.c with HyStart, proportional rate reduction",
    "reno": "Linux tcp_cong.c, proportional rate reduction",
    "vegas": "Linux tcp_vegas.c, proportional rate reduction",
    "dctcp": "Linux tcp_dctcp.c, proportional rate reduction",
}


def write_bundle(
    setup: Setup, folder: Path, extra: dict[str, Any] | None = None, events: bool = True
) -> Simulated:
    """Run a world and write its bundle, first into a folder aside, which is then renamed.

    Args:
        folder: must not exist.
        extra: what else the manifest says, such as the lab's run.
        events: record BBR's callbacks; without them flows of several versions may run together.

    Raises:
        ScenarioError: the world is impossible, or a bundle cannot hold it.
        BbrscopeError: the run outgrew its memory.
    """
    taken = ScenarioError(f"{folder} is there already", "name another with -o, or remove it")
    if os.path.lexists(folder):
        raise taken
    if not RUN_NAME.fullmatch(folder.name):
        raise ScenarioError(f"{folder.name!r:.60} cannot name a run", f"use {NAME_HOLDS}")
    version = _version(setup) if events else None
    if extra is None and not any(flow.version for flow in setup.flows):
        raise ScenarioError(
            "no flow has BBR: the bundle would hold no event", "add one to --cc, or leave -o out"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = ScratchFolder(folder.parent)
    except OSError as error:
        raise ScenarioError(
            f"cannot write {folder}: {error.strerror}", "name another folder with -o"
        ) from error
    with scratch:
        aside = scratch.path / folder.name
        aside.mkdir()
        outcome = _write(setup, version, aside, folder.name, extra or {})
        try:
            aside.rename(folder)
        except OSError as error:
            # Another process made the same run meanwhile.
            raise taken from error
    return outcome


def mixed(setup: Setup) -> str:
    """Which versions and variants of BBR a world's flows run, if several; else empty.

    A bundle with events is of one kernel, which has one BBR.
    """
    rules = sorted({flow.slot for flow in setup.flows if flow.slot})
    return f"flows of {in_words(rules)} together" if len(rules) > 1 else ""


def _version(setup: Setup) -> str | None:
    versions = {flow.version for flow in setup.flows if flow.version}
    if several := mixed(setup):
        raise ScenarioError(
            several,
            "a bundle with events is of one kernel, which has one BBR: `simulate` without -o takes"
            " several",
        )
    return next(iter(versions), None)


def _write(
    setup: Setup, version: str | None, aside: Path, name: str, extra: dict[str, Any]
) -> Simulated:
    if version is None:
        outcome, rows = simulate(setup), {}
    else:
        flow = next(one for one in setup.flows if one.version)
        with (
            (aside / EVENTS).open("wb") as raw,
            zstandard.ZstdCompressor(level=3).stream_writer(raw) as out,
        ):
            writer = EventWriter(out, version, parameters_of(flow))
            outcome = simulate(setup, writer.take)
        outcome = replace(outcome, began=tuple(writer.began))
        rows = dict(writer.rows)
    _write_queue(outcome, aside)
    for number, rate in enumerate(goodput_mbps(outcome), 1):
        text = json.dumps(report(outcome, number, rate))
        (aside / f"iperf{number}.json").write_text(text)
    manifest = _manifest(setup, version, name, rows) | extra
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1, default=str) + "\n")
    return outcome


def _write_queue(outcome: Simulated, aside: Path) -> None:
    lines = ["uptime_s,kind,sent_bytes,sent_pkts,dropped,overlimits,requeues"]
    lines[0] += ",backlog_bytes,backlog_pkts"
    path = outcome.setup.path
    frame = path.mss + path.headers
    for at, packets, size, sent, dropped in outcome.samples.tolist():
        at_s = (EPOCH_NS + at) / 1e9
        lines.append(f"{at_s:.2f},tbf,{sent * frame},{sent},{dropped},0,0,{size},{packets}")
    text = ("\n".join(lines) + "\n").encode()
    (aside / QUEUE).write_bytes(zstandard.ZstdCompressor(level=3).compress(text))


def _manifest(setup: Setup, version: str | None, name: str, rows: dict[str, int]) -> dict[str, Any]:
    path = setup.path
    end_ns = EPOCH_NS + setup.duration_us * 1000
    flow = next((one for one in setup.flows if one.version), setup.flows[0])
    parameters = parameters_of(flow)
    base = params.DEFAULTS[version or "v3"] | {"HZ": parameters["HZ"]}
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "bbr": version,
        "kernel": f"bbrscope simulation of {Path(flow.variant).name or version or 'Linux'}",
        "simulated": {"seed": setup.seed, "holds": statement(setup)}
        | _variant(flow.variant)
        | {f"rules_of_{one.cc}": _RULES[one.cc] for one in setup.flows if one.cc in _RULES},
        "rules": as_settings(parameters, base),
        "setup": {
            **as_words(path),
            "ccs": " ".join(one.cc for one in setup.flows),
            "starts": " ".join(f"{one.start_us / 1e6:g}" for one in setup.flows),
            "t": f"{setup.duration_us / 1e6:g}",
            "n": str(len(setup.flows)),
        },
        "changes": [
            {"at_s": at / 1e6, "what": what, "value": value} for at, what, value in path.changes
        ],
        "traffic_start_uptime_s": EPOCH_NS / 1e9,
        "constants": {"HZ": parameters["HZ"], "GSO_MAX_SIZE": 65536, "GSO_LEGACY_MAX_SIZE": 65536},
        "module_params": {},
        "clocks": {
            point: {
                "realtime_ns": min(_REALTIME_NS + at, MAX_NS),
                "monotonic_ns": at,
                "boottime_ns": at,
            }
            for point, at in (("start", EPOCH_NS), ("end", end_ns))
        },
        "events": rows,
        "events_lost": 0,
        "packets": None,
    }


def _variant(variant: str) -> dict[str, str]:
    """Which variant ran; of a user's file also a digest, since the bundle does not have it."""
    if not variant:
        return {}
    file = Path(variant)
    told = {"variant_sha256": digest_of(file)} if variant not in VARIANTS else {}
    return {"variant": file.name} | told
