"""Faults, one a file; each can be injected and healed, any number of times, in this order."""
