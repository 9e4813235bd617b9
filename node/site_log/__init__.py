"""The site log as a node reads and writes it."""
