"""What a proxy answers over HTTP."""
