"""What a recording can lack or what can be odd in it: the codes of table capture_quality."""

from __future__ import annotations

# Code -> the sentence that ingest fills in. A seq in capture_quality is the event that follows the
# gap, or the event itself where the sentence speaks of "this event".
CODES = {
    "half_event": "{kind} at line {line}: {have} recorded, {missing} missing; event dropped",
    "orphan_row": "{tag} of socket {sk} follows no row that it could belong to; row dropped",
    "duplicate_row": "{tag} of socket {sk} is there twice; the second is dropped",
    "missing_exit": "this {kind}'s exit rows are missing: what it left behind is not known",
    "exits_stop": "exit rows stop here: {count} later events were recorded while probes detached",
    "delivered_jump": "tp.delivered grew by {grown} since the main before, rs.acked_sacked is "
    "{acked}: calls in between went unseen",
    "lost_message": "the collector reports: {text}",
    "lost_declared": "the manifest says that {count} rows were lost",
    "no_init": "recording starts in the middle of this flow",
    "unknown_tag": "rows of {name} are not known: skipped",
    "unknown_column": "column {name} of {tags} is not known: not stored",
    "cut_off": "{what}: read up to here",
    "bad_row": "{what}; row dropped",
    "row_count": "{tag}: {found} rows, the manifest says {said}",
}
