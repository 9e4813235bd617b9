"""A proxy as one deterministic machine."""
