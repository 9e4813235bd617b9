"""A session as plain values."""
