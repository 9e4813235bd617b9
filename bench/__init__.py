"""Measurements: `python -m bench [NAME...]`. One benchmark a file; each says what it measures and its goal."""
