"""Workloads: setup, start, check. A workload is not told which fault hits it."""
