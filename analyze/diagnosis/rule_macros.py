"""What several rules ask or say alike, as macros for their queries."""

from __future__ import annotations

from ..views.macros import Macro

RULE_MACROS = (
    Macro(
        "counted",
        ("amount",),
        "",
        "a whole number within words, as numbers of sentences are written: 19,130",
        "format('{:,}', amount)",
    ),
    Macro(
        "rate_words",
        ("capacity", "known", "else_words"),
        "",
        "known; where no rate of the path is known (capacity NULL), that it is not, and else_words",
        "CASE WHEN capacity IS NULL THEN 'the path''s rate is not known, and ' || else_words"
        " ELSE known END",
    ),
    Macro(
        "wait_words",
        ("wait_us", "before", "after", "is_stated", "fair"),
        "",
        "a sentence with a wait in the queue; where none is known (NULL), that it is not, and what"
        " else it may be, beside a path that the set-up states or not; or, where it keeps a queue"
        " for each flow (its name, or NULL), that its samples do not tell",
        "coalesce(before || round(wait_us / 1e3, 1) || ' ms' || after, 'How long packets waited in"
        " the queue is not known: ' || CASE WHEN fair IS NOT NULL THEN fair || ' keeps one for each"
        " flow, and its samples count the packets of all.'"
        " WHEN is_stated THEN 'ACKs may have waited on their way"
        " back, too.' ELSE 'the path itself may have become longer, or ACKs wait on their way"
        " back.' END)",
    ),
    Macro(
        "queue_confidence",
        ("wait_us", "is_stated"),
        "",
        "how sure it is that a long RTT is a queue's: its own samples show it; or only that the"
        " set-up states a shorter path; or neither",
        "CASE WHEN wait_us IS NOT NULL THEN 'high' WHEN is_stated THEN 'medium' ELSE 'low' END",
    ),
    Macro(
        "shortest_words",
        ("base_is_known", "other"),
        "",
        "whose a base RTT is: of a path that became longer or shorter, what it took then; the "
        "path's, as its set-up says; else the least one that was recorded",
        "CASE WHEN other THEN 'that it took then without a queue'"
        " WHEN base_is_known THEN 'that the path takes' ELSE 'of its least round trip' END",
    ),
    Macro(
        "least_words",
        ("base_is_known",),
        "",
        "what a base RTT is: the path's without a queue, as its set-up says; else a least one that"
        " was recorded, which a queue may lengthen, and jitter or packets that overtake shorten",
        "CASE WHEN base_is_known THEN 'without a queue' ELSE 'at least' END",
    ),
    Macro(
        "is_path",
        ("wait_us", "alone", "probe_us", "around_us", "after_us", "most_us"),
        "",
        "an RTT above most_us is the path's: no queue was sampled, and a flow that is alone, which"
        " empties the queue in PROBE_RTT, saw no less than that then (probe_us). Where it is not"
        " known whether it was alone (NULL), its drains before and after went down to the same RTT"
        " (around_us), which others' queues do not. Or whoever else was there: half of its packets"
        " took the same afterwards (after_us), to a fiftieth of the excess, and its own part of a"
        " queue would be a tenth or more",
        "wait_us IS NULL AND coalesce(probe_us > most_us, false)"
        " AND (coalesce(alone, around_us BETWEEN 0.95 * probe_us AND 1.05 * probe_us, false)"
        " OR coalesce(abs(after_us - probe_us) <= 0.02 * (probe_us - most_us), false))",
    ),
    Macro(
        "is_outside",
        ("binding",),
        "",
        "what limited a flow is neither BBR nor the path",
        "binding IN ('application', 'receive_window', 'max_pacing_rate')",
    ),
    Macro(
        "senders_words",
        ("smaller",),
        "",
        "the end of a sentence that counts senders: where those that are too small to count carried"
        " enough together (table smaller), that they are not counted",
        "CASE WHEN smaller THEN ', not counting flows with less than a hundredth of the largest"
        " one''s bytes, or with few ACKs.' ELSE '.' END",
    ),
    Macro(
        "trend_words",
        ("converging", "first_share", "second_share"),
        "",
        "the end of a sentence about a share: of one that was still on its way to an equal one "
        "(table trends), that it was, by halves of the time",
        "CASE WHEN converging THEN '; by halves of the time when all were active, its share of what"
        " was carried was ' || round(100 * first_share)::INTEGER || ' % and ' || round(100 *"
        " second_share)::INTEGER || ' %, still on its way to an equal one: a longer run may"
        " end fair.' ELSE '.' END",
    ),
    Macro(
        "halves_words",
        ("first_share", "second_share"),
        "",
        "a sentence with a sender's share in the halves of the time when all were there (NULL: no"
        " such time)",
        "coalesce('By halves of the time when all senders were there, its share of what was carried"
        " was ' || round(100 * first_share)::INTEGER || ' % and ' || round(100 *"
        " second_share)::INTEGER || ' %.', 'The senders were never all there for whole seconds.')",
    ),
    Macro(
        "rival_words",
        ("rivals",),
        "",
        "the end of a sentence about the senders that are no recorded flows (rows of table rivals,"
        " or NULL): each one's congestion control, where the set-up states it, and its share",
        "coalesce(' (' || list_aggregate(list_transform(rivals, lambda r: coalesce(r.cc, 'of an"
        " unknown congestion control') || ' with ' || round(100 * r.share, 1) || ' %'),"
        " 'string_agg', ', ') || ' of what all carried while all were there).', '.')",
    ),
)
