"""How whole a recording is, in a sentence: the same in diagnose, explain and the report."""

from __future__ import annotations

from ....analyze.story.completeness import RunCompleteness
from ....collect.bundle.rungs import CAPTURE, RUNGS
from ....probes.base.plurals import plural
from ..print_table import printable

# So many kinds of notes are named, the others counted.
MOST_KINDS = 4


def completeness(known: RunCompleteness, rung: str | None) -> tuple[str, str]:
    """Return (good, bad or soft, sentence); `rung` as table runs has it.

    Every place shows this one sentence, so that no two of them contradict each other.
    """
    if known.simulated:
        holds = printable(known.simulated)
        return "soft", f"Simulated, no kernel's recording. Fidelity: {holds}."
    noted = _noted(known)
    if known.lacks:
        more = f" Ingest noted: {noted}." if noted else ""
        return "bad", f"The recording is incomplete: {', '.join(_lacks(known))}.{more}"
    if noted:
        # Some kinds say that calls went unseen: no word that nothing is lost.
        return "soft", f"Ingest noted what is odd or missing: {noted}."
    if rung == CAPTURE.name:
        return "good", "The capture is whole: it does not end in the middle of a packet."
    if rung in RUNGS and not RUNGS[rung].replays:
        return "good", "Ingest noted nothing that is missing or odd in the samples."
    return "good", "The recording is complete: no row lost, no event without its other half."


def _noted(known: RunCompleteness) -> str:
    kinds = [f"{count:,} x {printable(kind)}" for kind, count in known.noted.items()]
    more = [f"{plural(len(kinds) - MOST_KINDS, 'more kind')}"] if len(kinds) > MOST_KINDS else []
    return ", ".join([*kinds[:MOST_KINDS], *more])


def _lacks(known: RunCompleteness) -> list[str]:
    parts = ["main() was never recorded"] if known.no_main else []
    if known.lost:
        were = "was" if known.lost == 1 else "were"
        parts.append(f"{plural(known.lost, 'row')} {were} lost while recording")
    if known.halves:
        parts.append(f"{plural(known.halves, 'half event')} had to be dropped")
    if known.gaps:
        parts.append(f"events are missing in {plural(known.gaps, 'place')}")
    if known.salvaged:
        parts.append("it was read from a damaged file")
    if known.columns:
        named = [*map(printable, known.columns[:MOST_KINDS])]
        named += [f"{len(known.columns) - MOST_KINDS} more"] * (len(known.columns) > MOST_KINDS)
        parts.append(f"fields that the replay needs were not recorded ({', '.join(named)})")
    return parts
