"""The rate of a link that nobody stated, by the counters of the queue before it.

While a queue holds packets, its device sends as fast as the link takes them: what it sent between
two samples that both found packets waiting is the link's rate. That holds for queues that only wait
for the link (a shaper, or a device's own queue), not for those that hold packets back by a clock of
their own (fq, netem). Nor does it where each flow that was heard between the two had nothing to
send for a while: the queue may have run empty, and filled again.
"""

from __future__ import annotations

# Queues that let packets go as soon as the link takes them.
_KINDS = (
    "tbf htb cake fq_codel codel pfifo bfifo pfifo_fast red pie fq_pie sfq sfb prio drr".split()
)
# So many intervals between samples, one after the other and all with packets waiting, make a
# block: with fewer, a queue that fills now and then would pass for one that never empties.
_BLOCK = 5
# Blocks that differ by less are of one rate: their times are known to some 10 ms of half a second.
_SAME = 0.1
# Beyond its rate, a shaper may send a bucket at once [bytes].
_BUCKET = 131072

# run_id, start_ns, bits_per_s, as link_rates has them.
# A block of two rates is neither's, so a rate needs two blocks where there is more than one. If as
# many bytes went out at any time as this rate does not allow, the link is faster: it is not told.
MEASURED = f"""
polls AS (
  SELECT run_id, kind, ns::BIGINT AS ns, sent_bytes::BIGINT AS sent, backlog_pkts > 0 AS waiting,
    lead(ns::BIGINT) OVER w - ns::BIGINT AS held_ns,
    lead(sent_bytes::BIGINT) OVER w - sent_bytes::BIGINT AS bytes,
    lead(backlog_pkts) OVER w > 0 AS still_waiting, row_number() OVER w AS place
  FROM queue_samples
  WHERE ns IS NOT NULL AND kind IN ({", ".join(f"'{kind}'" for kind in _KINDS)})
    AND run_id NOT IN (SELECT run_id FROM stated)
  WINDOW w AS (PARTITION BY run_id, kind ORDER BY ns)
), heard AS (
  SELECT k.run_id, k.kind, e.ns::BIGINT AS ns, e.flow, e.tp_app_limited <> 0 AS idle
  FROM (SELECT DISTINCT run_id, kind FROM polls) k JOIN events e USING (run_id)
  WHERE e.tp_app_limited IS NOT NULL
), pauses AS (
  SELECT run_id, kind, ns, bool_and(paused) AS all_paused FROM (
    SELECT p.run_id, p.kind, p.ns, h.flow, bool_or(h.idle) AS paused
    FROM heard h ASOF JOIN polls p ON p.run_id = h.run_id AND p.kind = h.kind AND h.ns >= p.ns
    GROUP BY ALL)
  GROUP BY ALL
), busy AS (
  SELECT p.*, p.place - row_number() OVER (PARTITION BY run_id, kind ORDER BY ns) AS spell
  FROM polls p LEFT JOIN pauses USING (run_id, kind, ns)
  WHERE waiting AND still_waiting AND held_ns > 0 AND bytes > 0 AND NOT coalesce(all_paused, false)
), placed AS (
  SELECT *, (row_number() OVER (PARTITION BY run_id, kind, spell ORDER BY ns) - 1) // {_BLOCK}
    AS block FROM busy
), blocks AS (
  SELECT run_id, kind, min(ns) AS ns, sum(bytes) * 8e9 / sum(held_ns) AS bits_per_s,
    sum(bytes) AS bytes, sum(held_ns) AS held_ns
  FROM placed GROUP BY run_id, kind, spell, block HAVING count(*) = {_BLOCK}
), changes AS (
  SELECT *, coalesce(abs(bits_per_s / lag(bits_per_s) OVER w - 1) > {_SAME}, true) AS other
  FROM blocks WINDOW w AS (PARTITION BY run_id, kind ORDER BY ns)
), levels AS (
  SELECT run_id, kind, min(ns) AS ns, max(ns) AS last_ns, count(*) AS blocks,
    sum(bytes) * 8e9 / sum(held_ns) AS bits_per_s
  FROM (SELECT *, sum(other::INTEGER) OVER (PARTITION BY run_id, kind ORDER BY ns) AS level
    FROM changes)
  GROUP BY run_id, kind, level
  QUALIFY blocks > 1 OR count(*) OVER (PARTITION BY run_id, kind) = 1
), steps AS (
  SELECT *, lag(bits_per_s) OVER w AS old_bits, lag(last_ns) OVER w AS old_ns FROM levels
  WINDOW w AS (PARTITION BY run_id, kind ORDER BY ns)
  QUALIFY old_bits IS NULL OR abs(bits_per_s / old_bits - 1) > {_SAME}
), sent AS (
  SELECT run_id, kind, ns, sum(bytes) OVER next * 8e9 / sum(held_ns) OVER next AS bits_per_s,
    {_BUCKET} * 8e9 / sum(held_ns) OVER next AS bucket_per_s,
    ns + sum(held_ns) OVER next // 2 AS middle_ns
  FROM polls
  WINDOW next AS (PARTITION BY run_id, kind ORDER BY ns
    ROWS BETWEEN CURRENT ROW AND {_BLOCK - 1} FOLLOWING)
), turned AS (
  -- A faster link empties its queue: it is there from when more was sent than before; and a slower
  -- one from when more was sent for the last time.
  SELECT p.run_id, p.kind, p.ns, CASE WHEN any_value(p.bits_per_s > p.old_bits)
    THEN min(t.middle_ns) ELSE max(t.ns) END AS turned_ns
  FROM steps p JOIN sent t
    ON t.run_id = p.run_id AND t.kind = p.kind AND t.ns > p.old_ns AND t.ns < p.ns
  WHERE t.bits_per_s > (1 + {_SAME}) * least(p.bits_per_s, p.old_bits)
  GROUP BY p.run_id, p.kind, p.ns
), rates AS (
  SELECT run_id, kind, p.bits_per_s,
    (CASE WHEN old_bits IS NULL THEN 0 ELSE coalesce(turned_ns, ns) END)::BIGINT AS start_ns
  FROM steps p LEFT JOIN turned USING (run_id, kind, ns)
), beyond AS (
  SELECT DISTINCT t.run_id, t.kind FROM sent t ASOF JOIN rates r
    ON r.run_id = t.run_id AND r.kind = t.kind AND t.ns >= r.start_ns
  -- What begins before a change may end after it.
  LEFT JOIN rates n ON n.run_id = t.run_id AND n.kind = t.kind
    AND n.start_ns BETWEEN t.ns AND t.ns + 1000000000
  WHERE n.run_id IS NULL AND t.bits_per_s > (1 + {_SAME}) * r.bits_per_s + t.bucket_per_s
), measured AS (
  SELECT run_id, start_ns, bits_per_s FROM rates ANTI JOIN beyond USING (run_id, kind)
  -- A shaper and the queue within it count the same packets.
  QUALIFY kind = first(kind) OVER (PARTITION BY run_id ORDER BY bits_per_s, kind)
)
"""
