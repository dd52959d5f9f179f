"""A lake: runs as Parquet files in a folder or a bucket, which many hosts may add to at once.

``DIR/TABLE/day=/host=/run=/run_id=/TOKEN.parquet`` holds the rows, ``DIR/manifest/RUN_ID.parquet``
one row per run, which names its files. A run is there once its row is: the row is written last, in
one step, so that a reader finds a run whole or not at all.
"""
