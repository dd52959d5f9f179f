"""The story of a flow as text for a terminal, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ..analyze import names as naming
from ..analyze.bbr.codes import kernel_function
from ..analyze.explain import BOUNDS, Flow, Line
from ..analyze.folding import (
    Cycle,
    Stretch,
    fold_cycles,
    fold_repeated,
    fold_steps,
    fold_stretches,
)
from ..analyze.instant import Instant
from ..analyze.sentences import milliseconds, value
from .tables import printable

# A longer story is folded: its repeating cycles are told once.
PAGE = 100
_PHASE_ORDER = (
    "ALL",
    "STARTUP",
    "DRAIN",
    "PROBE_BW_REFILL",
    "PROBE_BW_UP",
    "PROBE_BW_1.25",
    "PROBE_BW_DOWN",
    "PROBE_BW_0.75",
    "PROBE_BW_CRUISE",
    "PROBE_BW_1.0",
    "PROBE_BW_LT",
    "PROBE_RTT",
)
_UNKNOWN = (
    "unknown: nothing recorded held the sender back (no data to send, a full send buffer or the"
    " small-queue limit), or the recording has a gap there"
)


def seconds(ns: int) -> str:
    return f"{ns / 1e9:.3f}"


def short(phase: str | None, names: str) -> str:
    """A phase without the prefix that most of them share.

    >>> short("PROBE_BW_CRUISE", "kernel"), short("PROBE_BW_0.75", "kernel")
    ('CRUISE', '0.75x')
    """
    if phase is None:
        return "-"
    if phase == "PROBE_BW_LT":
        return "policer"
    name = phase.removeprefix("PROBE_BW_")
    if name != phase and name[0].isdigit():
        return name + "x"
    return name if name != phase else naming.translate(phase, names)


def what(line: Line, names: str) -> str:
    """What changed, from what to what."""
    if line.about == "phase":
        if line.old is None:
            return f"{short(str(line.new), names)} begins"
        return f"{short(str(line.old), names)} -> {short(str(line.new), names)}"
    if line.about in (*BOUNDS, "cwnd", "core") and line.old is not None and line.new is not None:
        old, new = _values(line)
        if old.endswith("Mbit/s") and new.endswith("Mbit/s"):
            old = old.removesuffix(" Mbit/s")
        what_changed = "cwnd" if line.about == "core" else line.about
        return naming.translate(f"{what_changed} {old} -> {new}", names)
    return line.name or "unknown"


def _values(line: Line) -> tuple[str, str]:
    """Old and new value of a bound in words."""
    name = "old_bw" if line.about == "bw_lo" else "old"
    old, new = (value(name, int(number or 0), line.mss) for number in (line.old, line.new))
    return old, new


def why(line: Line, version: str, names: str) -> str:
    """The decisions in words, the kernel function that took the first, and any doubt."""
    told = line.last or line
    sentences = [reason.sentence for reason in told.reasons]
    if len(sentences) == 1 and line.about in (*BOUNDS, "cwnd"):
        sentences = [_without_values(sentences[0], told)]
    text = naming.translate(" ".join(sentences), names)
    if line.count > 1:
        text = f"{line.count} steps until {seconds(line.until_ns)} s, the last: {text}"
    if told.reasons:
        text += f" [{source(told, version, names)}]"
    elif line.name == "MID_FLOW":
        text = "The recording starts in the middle of the flow."
    elif line.name == "SAMPLED":
        text = "seen by sampling; why is not recorded" if line.old is not None else "first seen so"
    elif line.name is None:
        text = "no decision is known"
    if line.doubt:
        text = f"{text} ({line.doubt})".strip()
    return text


def _without_values(sentence: str, line: Line) -> str:
    """Drop 'inflight_hi 66->58: ' where the column beside it says so already."""
    if line.old is None or line.new is None:
        return sentence
    old, new = _values(line)
    rest = sentence.removeprefix(f"{line.about} {old}->{new}")
    if rest == sentence:
        return sentence
    rest = rest.lstrip(" :,")
    return rest[1:-2] + "." if rest.startswith("(") and rest.endswith(").") else rest


def source(line: Line, version: str, names: str) -> str:
    """Where the decision is taken: the kernel's function, or the draft's section."""
    code = line.reasons[0].code
    return code.draft if names == naming.DRAFT else kernel_function(code, version)


def header(flow: Flow, names: str) -> list[str]:
    """Who the flow is, how it did, and how far the story may be trusted."""
    s = flow.summary
    ends = f": {s['local']} -> {s['remote']}" if s["local"] and s["remote"] else ""
    facts = [f"{s['duration_ns'] / 1e9:.1f} s"]
    if s["throughput_mbps"] is not None:
        facts.append(f"{s['throughput_mbps']:.2f} Mbit/s delivered")
    facts.append(f"{s['delivered']:,} packets")
    if s["lost"] is not None:
        facts[-1] += f", {s['lost']:,} lost"
    if s["retransmits"]:
        facts[-1] += f", {s['retransmits']:,} sent again"
    if s["min_rtt_us"] is not None:
        facts.append(f"min_rtt {milliseconds(s['min_rtt_us'])}")
    if s["max_bw_mbps"]:
        facts.append(f"max_bw {s['max_bw_mbps']:.2f} Mbit/s")
    return [
        printable(f"{flow.run}, flow {flow.flow}{ends}"),
        naming.translate("  " + ", ".join(facts), names),
        printable(f"  decoded as {flow.version} because {flow.decoded_as}"),
        *(f"  {text}" for text in trust(flow)),
    ]


def trust(flow: Flow) -> list[str]:
    """How sure the capture allows one to be."""
    s = flow.summary
    compared, exact = s["replayed"] or 0, s["exact"] or 0
    lost = []
    if flow.lost:
        lost.append(f"{flow.lost}: changes may be missing (bbrscope sql 'FROM accounting')")
    if flow.sampled:
        return [
            *lost,
            f"recorded by {flow.sampled.name}: {flow.sampled.can}",
            f"it cannot {flow.sampled.cannot}",
        ]
    lines = lost
    if not compared:
        lines.append("the replay could compare no event: nothing here is confirmed by the kernel")
    elif exact == compared:
        lines.append(
            f"replay: {exact:,} of {compared:,} events exact; the reasons are the kernel's own"
        )
    else:
        first = flow.first_divergence or {}
        lines.append(
            f"replay: only {exact:,} of {compared:,} events exact; be careful from event"
            f" {first.get('seq', 0)} on (bbrscope replay {flow.run})"
        )
    if not s["has_init"]:
        lines.append("the recording starts in the middle of the flow: what came before is unknown")
    if flow.missing:
        lines.append(f"the recording lacks {flow.missing}")
    if flow.gaps:
        hidden = sum(end - start for _, start, end, _ in flow.gaps)
        share = hidden / s["duration_ns"] if s["duration_ns"] else 0
        lines.append(
            f"{len(flow.gaps):,} gaps in the recording hide {100 * share:.1f} % of the time;"
            " a change inside one has no recorded reason"
        )
        lines += [
            f"  gap at {seconds(start - s['first_ns'])} s, {(end - start) / 1e6:.1f} ms: {detail}"
            for _, start, end, detail in flow.gaps[:3]
        ]
    return lines


def render(
    flow: Flow,
    lines: Sequence[Line],
    names: str = naming.KERNEL,
    width: int | None = None,
    fold: bool = True,
    between: tuple[int, int] | None = None,
) -> Iterable[str]:
    """Yield the story's lines of text.

    Args:
        width: wrap at this many columns; None: do not wrap.
        fold: tell steps of a bound and repeating cycles once.
        between: (from, to) [ns since the flow's first event] that `lines` were cut to.
    """
    steps = fold_steps(lines) if fold else list(lines)
    text = list(_table(steps, flow.version, names, width))
    if fold and (flow.version == "v1" or len(text) > PAGE):
        items = fold_cycles(steps)
        text = list(_table(items, flow.version, names, width))
        if len(text) > PAGE:
            text = list(_table(fold_stretches(items), flow.version, names, width))
        if len(text) > PAGE:
            text = list(_table(fold_stretches(items, True), flow.version, names, width))
    yield from text
    if not steps:
        yield "  nothing changed" + (
            f" between {seconds(between[0])} and {seconds(between[1])} s" if between else ""
        )


def render_decisions(
    flow: Flow, lines: Sequence[Line], names: str, width: int | None = None, fold: bool = True
) -> Iterable[str]:
    """Yield text for a list of decisions, one line each."""
    items = fold_repeated(lines) if fold else list(lines)
    column = max((len(line.name or "") for line in items), default=0)
    for line in items:
        text = why(line, flow.version, names).replace(" steps until", " times until", 1)
        yield from _row(line.t_ns, line.name or "", text, column, width)
    if not items:
        yield "  no such decision"


def _table(
    items: Sequence[Line | Cycle | Stretch], version: str, names: str, width: int | None
) -> Iterable[str]:
    rows: list[tuple[int | None, str, str]] = []
    for item in items:
        if isinstance(item, Line):
            rows.append((item.t_ns, what(item, names), why(item, version, names)))
        elif isinstance(item, Cycle):
            rows += [
                (line.t_ns, what(line, names), why(line, version, names))
                for line in item.lines[: item.length]
            ]
            more = f"... {item.repeats - 1} x the same"
            rows.append((item.lines[item.length].t_ns, more, cycle_text(item, names)))
        else:
            rows += stretch_rows(item, names)
    column = max((len(label) for _, label, _ in rows), default=0)
    for t_ns, label, text in rows:
        yield from _row(t_ns, label, text, column, width)


def stretch_rows(stretch: Stretch, names: str) -> list[tuple[int | None, str, str]]:
    """How often what happened in a restless stretch, and within which limits the bounds moved."""
    lines = stretch.lines
    end = seconds(max(line.until_ns for line in lines))
    count = sum(line.count for line in lines)
    rows: list[tuple[int | None, str, str]] = [
        (lines[0].t_ns, f"{count:,} changes", f"until {end} s (--full, or --between, tells each)")
    ]
    for (about, old, new), counter in stretch.by_change().items():
        counts = ", ".join(f"{name} {times:,}x" for name, times in counter.most_common())
        if about == "phase":
            rows.append((None, f"  {short(old, names)} -> {short(new, names)}", counts))
        else:
            name = "old_bw" if about == "bw_lo" else "old"
            numbers = stretch.values(about)
            least, most = (value(name, n, lines[0].mss) for n in (min(numbers), max(numbers)))
            label = f"  {naming.translate(about, names)}"
            rows.append((None, label, f"{least} to {most}: {counts}"))
    return rows


def cycle_text(cycle: Cycle, names: str) -> str:
    """When a repeating cycle ends, and the decisions that made its steps where they vary."""
    parts = []
    for line, codes in cycle.codes():
        if len(codes) > 1:
            counts = ", ".join(f"{name} {count}x" for name, count in codes.most_common())
            parts.append(f"{what(line, names)} by {counts}")
    end = f"until {seconds(cycle.lines[-1].until_ns)} s"
    return "; ".join([end, *parts])


def _row(t_ns: int | None, label: str, text: str, column: int, width: int | None) -> Iterable[str]:
    when = "" if t_ns is None else seconds(t_ns)
    start = f"{when:>9}  {label:<{column}}  "
    if width is None or len(start) + 20 > width:
        yield start + text
        return
    wrapped = textwrap.wrap(text, width - len(start)) or [""]
    yield start + wrapped[0]
    yield from (" " * len(start) + part for part in wrapped[1:])


def binding_table(flow: Flow, names: str) -> list[str]:
    """What limited the flow, % of time, overall and per phase."""
    phases = sorted(
        {row["phase"] for row in flow.binding}, key=lambda phase: _PHASE_ORDER.index(phase)
    )
    share = {(row["phase"], row["binding"]): row["share"] for row in flow.binding}
    bindings = [row["binding"] for row in flow.binding if row["phase"] == "ALL"]
    if not bindings:
        return []
    heads = ["all" if phase == "ALL" else short(phase, names) for phase in phases]
    labels = [naming.translate(name, names) for name in bindings]
    widths = [max(len(head), 5) for head in heads]
    first = max(len("% of time limited by"), *map(len, labels))

    def row(label: str, cells: Sequence[str]) -> str:
        padded = (f"{text:>{width}}" for text, width in zip(cells, widths, strict=True))
        return f"  {label:<{first}}  " + "  ".join(padded)

    lines = [row("% of time limited by", heads)]
    for binding, label in zip(bindings, labels, strict=True):
        cells = [percent(share.get((phase, binding))) for phase in phases]
        lines.append(row(label, cells))
    sums = (sum(share.get((phase, binding), 0) for binding in bindings) for phase in phases)
    lines.append(row("sum", [f"{100 * total:.1f}" for total in sums]))
    if "unknown" in bindings:
        lines += textwrap.wrap(_UNKNOWN, 96, initial_indent="  ", subsequent_indent="    ")
    return lines


def percent(share: float | None) -> str:
    return "." if share is None else "<0.1" if share < 0.0005 else f"{100 * share:.1f}"


def document(flow: Flow, lines: Sequence[Line], names: str) -> dict[str, Any]:
    """A flow's story as JSON: nothing folded, evidence in kernel units."""
    return {
        "flow": flow.flow,
        "version": flow.version,
        "decoded_as": flow.decoded_as,
        "trust": {
            "replayed": flow.summary["replayed"],
            "exact": flow.summary["exact"],
            "gaps": len(flow.gaps),
            "has_init": flow.summary["has_init"],
            "notes": trust(flow),
        },
        "lines": [line_document(flow, line, names) for line in lines],
        "binding": [
            row | {"binding": naming.translate(row["binding"], names)} for row in flow.binding
        ],
    }


def line_document(flow: Flow, line: Line, names: str) -> dict[str, Any]:
    return {
        "seq": line.seq,
        "t_ns": line.t_ns,
        "about": naming.translate(line.about, names),
        "old": naming.translate(line.old, names) if isinstance(line.old, str) else line.old,
        "new": naming.translate(line.new, names) if isinstance(line.new, str) else line.new,
        "code": line.name,
        "doubt": line.doubt or None,
        "reasons": [
            {
                "code": reason.code.name,
                "sentence": naming.translate(reason.sentence, names),
                "evidence": {
                    naming.translate(name, names): number
                    for name, number in reason.evidence.items()
                },
                "function": kernel_function(reason.code, flow.version),
                "draft": reason.code.draft,
            }
            for reason in line.reasons
        ],
    }


# What each binding constraint means, for one instant.
BINDING_WORDS = {
    "cwnd_target": "cwnd, at its target (gain x BDP + extra_acked) or on the way there",
    "inflight_hi": "cwnd, capped by inflight_hi",
    "inflight_hi_headroom": "cwnd, capped by inflight_hi less headroom",
    "inflight_lo": "cwnd, capped by inflight_lo",
    "probe_rtt": "cwnd, capped by PROBE_RTT",
    "recovery": "cwnd, cut by loss recovery",
    "pacing_bw_lo": "pacing at bw_lo",
    "pacing_max_bw": "pacing at max_bw x gain",
    "max_pacing_rate": "pacing at the application's SO_MAX_PACING_RATE",
    "policer": "pacing at the policer's rate lt_bw",
    "receive_window": "the peer's receive window",
    "application": "the application: it had nothing to send",
    "unknown": "unknown: no data, send buffer or small queues (no recorded signal tells which), "
    "or a gap of the recording",
}


def instant_text(flow: Flow, instant: Instant, names: str) -> list[str]:
    """State, limit and wait of one instant, aligned."""
    limit = BINDING_WORDS[instant.binding]
    if not instant.after:
        limit = "unknown: the recording ends or has a gap here"
    first, *others = instant.waits
    rows = [*instant.rows, ("limited by", limit), ("waits for", first)]
    rows += [("", text) for text in others]
    rows = [(naming.translate(a, names), naming.translate(b, names)) for a, b in rows]
    column = max(len(label) for label, _ in rows)
    when = "after" if instant.after else "before"
    lines = [
        printable(f"{flow.run}, flow {flow.flow} at {seconds(instant.t_ns)} s"),
        f"  state {when} event {instant.seq} ({instant.kind}) at {instant.event_ns / 1e9:.6f} s",
        f"  {trust(flow)[0]}",
    ]
    if not instant.after:
        lines.append("  what the event left behind is not recorded")
    return [*lines, *(f"  {label:<{column}}  {text}" for label, text in rows), ""]


def instant_document(flow: Flow, instant: Instant, names: str) -> dict[str, Any]:
    """The same as JSON; state in kernel units."""
    return {
        "flow": flow.flow,
        "version": flow.version,
        "t_ns": instant.t_ns,
        "seq": instant.seq,
        "event_t_ns": instant.event_ns,
        "state_is": "after" if instant.after else "before",
        "phase": naming.translate(instant.phase, names),
        "phase_since_ns": instant.phase_since_ns,
        "state": {naming.translate(name, names): v for name, v in instant.state.items()},
        "binding": naming.translate(instant.binding, names),
        "waits_for": [naming.translate(text, names) for text in instant.waits],
        "trust": trust(flow),
    }
