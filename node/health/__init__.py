"""What is wrong with a node and what it depends on, and how operators are told."""
