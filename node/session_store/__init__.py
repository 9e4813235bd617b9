"""The session store of a proxy, on its own disk."""
