"""Studies: what the runs of a scenario measured, against what its source claims.

`points` are the runs, `claims` judge them, `figures` are what the source drew, `tree` learns when
BBR beats CUBIC. Claims and figures are data: SQL in the catalogue of ``collect.lab`` and in
``figures.toml``.
"""
