"""What clients ask of a proxy, and what they are told."""
