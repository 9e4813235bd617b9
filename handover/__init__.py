"""How a session goes from one proxy to another: pure machines."""
