"""Samples as a run of their own: a log of ss, or a kernel's log with BBR's debug lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...probes.base.errors import BundleError
from ...probes.base.plurals import worded
from ..bundle.bundle import Clock
from ..bundle.quality import CODES
from ..bundle.zstd import DamagedError
from ..ingest.outcome import Outcome, outcome_of, stored_outcome
from ..ingest.single_file import load_single_file
from ..store.store import Store
from . import kernel_log as samples_kernel_log
from . import ss_log as samples_ss
from .load_samples import Loaded, Sample, load
from .log_lines import lines

if TYPE_CHECKING:
    import duckdb

READERS: dict[str, Callable[[Iterable[str]], Iterator[Sample]]] = {
    "ss": samples_ss.samples,
    "kernel_log": samples_kernel_log.samples,
}
_WAYS_OUT = {
    "ss": "let it have what `ss -tin` prints while BBR flows send: while date +%s.%N; do "
    "ss -tin; sleep 0.1; done > ss.log",
    "kernel_log": "v2alpha prints them with its module parameter debug_with_printk: "
    "dmesg > bbr.log",
    "tcp_info": "give one of a connection whose sender used BBR: of others no bbr_info is there",
}
_WHAT = {
    "ss": "samples of ss",
    "kernel_log": "v2alpha's debug lines in a kernel's log",
    "tcp_info": "snapshots of M-Lab's tcp-info, written when something changed,",
}
# ss is run again and again; a flow that goes on unseen for so much longer is noted.
GAP_NS = 5_000_000_000
GAP_LOOKS = 20


def load_log(
    store: Store,
    path: Path,
    kind: str,
    name: str | None,
    replace: bool,
    progress: Callable[[int], None] | None,
) -> Outcome:
    """Make a run of a log, unless the store has it; return what became of it.

    Args:
        store: opened for writing.
        path: the log; plain, gzip or zstd.
        kind: ``ss``, ``kernel_log`` or ``tcp_info``.
        name: name of the run instead of the file's.
        replace: replace another run of that name.
        progress: called with the bytes of the file read so far.

    Raises:
        BundleError: no sample of a BBR flow is in it, or its compression is damaged.
        StoreError: the name is taken.
    """
    loaded = Loaded()

    def fill(con: duckdb.DuckDBPyConnection, run_id: int) -> tuple[dict[str, Any], dict[str, str]]:
        nonlocal loaded
        try:
            loaded = _load(store, run_id, path, kind, progress)
        except DamagedError as error:
            raise BundleError(f"{path}: {error}", "unpack what can be read of it first") from error
        if not loaded.samples:
            what = "BBR's debug lines" if kind == "kernel_log" else kind
            raise BundleError(f"{path} holds no sample of a BBR flow by {what}", _WAYS_OUT[kind])
        return _facts(loaded, kind), notes_on(loaded)

    run_id, made = load_single_file(store, path, name, replace, fill)
    if made is None:
        return stored_outcome(store, run_id, already=True)
    seen = outcome_of(made.row, made.notes)
    return dataclasses.replace(seen, samples=loaded.samples, sources=tuple(sorted(loaded.sources)))


def _load(
    store: Store,
    run_id: int,
    path: Path,
    kind: str,
    progress: Callable[[int], None] | None,
) -> Loaded:
    if kind == "tcp_info":
        from . import tcp_info_archive  # numpy is not there where only ss is recorded

        return tcp_info_archive.load(store, run_id, path, progress)
    return load(store.con, run_id, READERS[kind](lines(path, progress)))


def load_recorded(
    con: duckdb.DuckDBPyConnection,
    run_id: int,
    path: Path,
    shown: str,
    clocks: tuple[Clock, ...],
    salvage: bool = False,
) -> dict[str, str]:
    """Load what ss showed while a bundle was recorded; return quality notes by their code.

    Call it inside a transaction, when the run's flows are loaded. With `salvage` the samples before
    the place where the file was cut off are kept.

    Raises:
        BundleError: its compression is damaged.
    """
    ahead = clocks[0].monotonic_ns - clocks[0].realtime_ns if clocks else None
    damage: list[str] = []
    samples = samples_ss.samples(_whole_part(path, shown, damage if salvage else None))
    loaded = load(con, run_id, samples, ahead)
    notes = notes_on(loaded) | cut_off(damage)
    notes.pop("samples_v1_form", None)  # the events tell all that
    return notes


def _whole_part(path: Path, shown: str, damage: list[str] | None) -> Iterator[str]:
    """Yield the lines of a file; of one that was cut off, with a list for `damage`, those there."""
    try:
        yield from lines(path, ended=damage is not None)
    except DamagedError as error:
        if damage is None or not error.cut:
            raise BundleError(f"{shown}: {error}", "delete it: it is optional") from error
        damage.append(f"{shown}: {error}")


def cut_off(damage: list[str]) -> dict[str, str]:
    """Say which files were cut off, by code."""
    return {"cut_off": worded(CODES["cut_off"], what="; ".join(damage))} if damage else {}


def _facts(loaded: Loaded, kind: str) -> dict[str, Any]:
    """What table runs has of a run of samples."""
    version = f"v{max(loaded.versions)}" if len(loaded.versions) == 1 else None
    clock = {"monotonic": "CLOCK_MONOTONIC", "realtime": "CLOCK_REALTIME"}
    clocks = " and ".join(clock[name] for name in sorted(loaded.clocks)) or "no clock"
    first, last = loaded.first_ns, loaded.last_ns
    return {
        "rung": "kernel_log" if kind == "kernel_log" else "inet_diag",
        "version": version if version in ("v1", "v2", "v3") else None,
        "decoded_as": f"{_WHAT[kind]} only: no kernel events were recorded; times on {clocks}",
        "started_realtime_ns": first if loaded.clocks == {"realtime"} else None,
        "first_ns": first,
        "last_ns": last,
        "duration_ns": None if first is None or last is None else last - first,
        "flows": loaded.flows,
    }


def notes_on(loaded: Loaded) -> dict[str, str]:
    """Say what samples lack, by code."""
    notes: dict[str, dict[str, Any]] = {}
    if loaded.untimed:
        code = "samples_undated" if "tcp_info" in loaded.sources else "samples_untimed"
        notes[code] = {"count": loaded.untimed, "total": loaded.samples}
    if loaded.backwards:
        notes["samples_backwards"] = {"count": loaded.backwards}
    usual = median(loaded.steps) if loaded.steps else 0
    longest = max(loaded.steps, default=0)
    if loaded.sources == {"ss"} and longest > max(GAP_NS, GAP_LOOKS * usual):
        notes["samples_gap"] = {"seconds": longest / 1e9, "usual": usual / 1e9}
    if loaded.sources == {"ss"} and not loaded.versions:
        notes["samples_v1_form"] = {}
    if "tcp_info" in loaded.sources:
        notes["samples_on_change"] = {}
    if loaded.broken:
        notes["samples_broken"] = {"count": loaded.broken, "line": loaded.first_broken}
    if "kernel_log" in loaded.sources:
        notes["samples_no_sender"] = {}
    return {code: worded(CODES[code], **values) for code, values in notes.items()}
