-- How far to trust each recording: what it lacks, by kind, with one example each.
SELECT r.run, q.kind, count(*) AS times, arg_min(q.detail, q.line) AS example
FROM capture_quality q JOIN runs r USING (run_id)
GROUP BY ALL ORDER BY r.run, times DESC, q.kind
