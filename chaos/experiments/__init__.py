"""Experiments: how the machines of a federation behave at sizes that nobody has at hand."""
