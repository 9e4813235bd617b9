"""The shells: they perform what machines decide, and answer them."""
