"""The command line."""

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C has ended."""
TERMINATED = 143
"""The exit status of a command that SIGTERM has ended."""
