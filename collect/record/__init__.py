"""Recording a run bundle on a live host.

Needs Python, click and zstandard only, so that it runs on hosts where nothing else is installed.
"""
