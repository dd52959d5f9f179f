"""Experiments on real kernels: scenarios as data, a testbed of network namespaces, traffic, runs.

Needs Python, click and zstandard only, like `collect.record`: it runs inside guests, too.
"""
