"""A small model of the handover protocol, explored exhaustively. See README.md."""
