"""Everything that a node can be told, and where its log lines go."""
