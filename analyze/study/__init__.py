"""Studies: what the runs of a scenario measured, beside what its source says.

`points` are the runs, `claims` judge them, `figures` are what the source drew, `tree` learns when
BBR beats CUBIC. Claims and figures are data: SQL in the catalogue of ``collect.lab`` and in
``figures.toml``.
"""
