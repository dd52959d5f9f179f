"""What a recording can lack or what can be odd in it: the codes of table capture_quality."""

from __future__ import annotations

from dataclasses import dataclass

from ...probes.base.plurals import worded

# Code -> the sentence that ingest fills in. A seq in capture_quality is the event that follows the
# gap, or the event itself where the sentence speaks of "this event".
CODES = {
    "half_event": "{kind} at line {line}: {have} recorded, {missing} missing; event dropped",
    "orphan_row": "{tag} of socket {sk} follows no row that it could belong to; row dropped",
    "duplicate_row": "{tag} of socket {sk} is there twice; the second is dropped",
    "missing_exit": "this {kind}'s exit rows are missing: what it left behind is not known",
    "exits_stop": "exit rows stop here: {count:later event was|later events were} recorded while "
    "probes detached",
    "left_bbr": "after this flow its socket had another congestion control{then}: nothing of that"
    " time is recorded",
    "back_to_bbr": "this flow's socket had BBR before, as flow {before}, and another congestion"
    " control in between",
    "cleared": "set_state() was called once more after tcp_disconnect() had cleared the socket "
    "(its program aborted the connection): that call is left out",
    "no_exits": "{call}() was recorded {entries:time|times} at entry and never at exit: what its "
    "calls left behind is not known, and no field that they wrote can be checked at once",
    "no_main": "{what}",
    "delivered_jump": "tp.delivered grew by {grown} since the main before, rs.acked_sacked is "
    "{acked}: calls in between went unseen",
    "sequence_gap": "before this event {count:of its socket is|of its socket are} missing, "
    "by their numbers",
    "lost_message": "the collector reports: {text}",
    "lost_declared": "the manifest says that {count:row was|rows were} lost",
    "probe_lost": "{probe}: the kernel counted {attempted:event|events}, {recorded:was|were} "
    "recorded, {lost} lost on the way",
    "runs_missed": "the kernel skipped {count:run|runs} of the probes: calls went unseen",
    "not_counted": "the collector's counters are missing, so that losses may go untold; it ended: "
    "{ended}",
    "ended_early": "the recording ended before its time: {ended}",
    "packets_ended": "tcpdump ended by itself ({how}): later packets are missing",
    "unfinished": "the recording was never finished: its rows were not counted, and the last of "
    "them may be missing",
    "no_manifest": "the recording has no manifest: HZ, clocks and settings are not known",
    "setting_changed": "changed while recording: {what}",
    "no_init": "recording starts in the middle of this flow",
    "unknown_tag": "rows of {name} are not known: skipped",
    "unknown_column": "column {name} of {tags} is not known: not stored",
    "columns_left_out": "rows {tags} have no column {names}. It cannot be told: {untold}",
    "out_of_order": "{count:row was|rows were} printed after newer ones: all were put in order of "
    "time, and lines are counted in that order",
    "cut_off": "{what}: read up to here",
    "bad_row": "{what}; row dropped",
    "packets_not_dissected": "{name} was not dissected: {why}",
    "capture_cut": "{name} ends early: {what}; its whole packets were kept",
    "capture_beside": "{name} holds more than packets: {comments:comment|comments} and "
    "{names:name|names}, kept in table attachments, and {secrets:block of decryption secrets, "
    "which stays|blocks of decryption secrets, which stay} in the file",
    "capture_no_tcp": "{name} holds no TCP segment among its {frames:packet|packets}",
    "capture_mostly_other": "of the {frames:packet|packets} of {name} {other:is|are} not TCP, or "
    "too short to tell",
    "capture_no_syn": "{name}: {count:connection begins before the capture: its|connections begin "
    "before the capture: their} window scale is not known",
    "capture_one_way": "{name}: of {count:connection|connections} only one direction was captured: "
    "no goodput, RTT and data in flight. Capture both: tcpdump -i IFACE -s 128 -w FILE tcp",
    "capture_cut_options": "{name}: {count:packet was captured too short for its|packets were "
    "captured too short for their} TCP options",
    "capture_untimed": "{name}: {count:packet is dated before 1970 or after 2116: its time "
    "is|packets are dated before 1970 or after 2116: their times are} left out. Set the capture's "
    "clock right: editcap -t SECONDS IN OUT",
    "capture_doubles": "{name}: {count:packet is|packets are} there twice, as from two taps: "
    "tshark takes copies for retransmissions, and pkt_ metrics count both. Capture on one "
    "interface, or take the copies out: editcap -w 0.005 IN OUT",
    "capture_clock_back": "{name}: {count:packet is older than the one before it|packets are older "
    "than the ones before them}, by up to {seconds:.3f} s: the clock jumped, and {then}",
    "capture_clock_ahead": "{name}: the clock was set forward by {seconds:.3f} s before packet "
    "{packet}, by the senders' own timestamps (such steps: {count}): {then}",
    "clock_drift": "CLOCK_REALTIME moved by {drift:.3f} ms against CLOCK_MONOTONIC while recording",
    "clock_shift": "packets of {name} were moved by {shift:.3f} ms: by the clocks in the manifest, "
    "events would precede the ACKs that caused them ({pairs:pair|pairs})",
    "clock_from_acks": "the manifest has no clocks: packets of {name} are placed by "
    "{pairs:ACK|ACKs}",
    "capture_unmatched": "no event could be joined to a packet of {name}",
    "capture_no_owner": "none of the packets of {name} ({packets}) belongs to a recorded flow: "
    "{why}",
    "samples_untimed": "of {total:sample|samples} {count:has|have} no time: only the order is "
    "known. Let a line with the time precede each poll: date +%s.%N; ss -tin",
    "samples_undated": "of {total:sample|samples} {count:has|have} no time, or one before 1970 or "
    "after 2116: only the order is known",
    "samples_broken": "{count:line with a snapshot|lines with a snapshot} cannot be read, the "
    "first at line {line}: left out",
    "samples_backwards": "{count:sample is older than the one before it|samples are older than the "
    "ones before them}: the clock jumped",
    "samples_gap": "{seconds:.3f} s are between two samples of a flow, {usual:.3f} s between most: "
    "the clock jumped ahead, or nobody looked; rates over that time are means",
    "samples_v1_form": "this ss prints of BBR what v1 tells: the version, bounds and extra_acked "
    "are not there, and phases are read from the gains",
    "samples_on_change": "a snapshot was written when something changed: a pause says that nothing "
    "did; the version, bounds and extra_acked are not there, and phases are read from the gains",
    "samples_no_sender": "the kernel's log does not name the sender's port: flows to the same "
    "address and port are told apart by what they had delivered",
    "row_count": "{tag}: {found:row|rows}, the manifest says {said}",
}

# Of these, what a flow carried and what was measured of it do not depend.
ASIDE = frozenset(
    "exits_stop left_bbr back_to_bbr cleared duplicate_row orphan_row missing_exit setting_changed"
    " out_of_order unknown_tag unknown_column row_count clock_drift clock_shift clock_from_acks"
    " capture_beside samples_v1_form samples_on_change samples_no_sender".split()
)


@dataclass
class QualityNote:
    """A row of table capture_quality."""

    code: str
    detail: str
    flow: int | None = None
    seq: int | None = None
    line: int | None = None
    ns: int | None = None


def note_of(code: str, **values: object) -> QualityNote:
    """Make a note on a recording as a whole; `values` fill the sentence of its code."""
    return QualityNote(code, worded(CODES[code], **values))
