"""What is concluded from recordings: tables of results, views, and stores that have both.

`registry` lists them all, `open_store` (in store_with_views.py) opens a store that has them, and
`materialize` stores the rows of views that take long to find.
"""
