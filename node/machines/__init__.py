"""Pure machines that the node and the simulator run alike (docs/adr/0023)."""
