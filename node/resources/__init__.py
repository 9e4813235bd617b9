"""What clients share: the time of the event loop, and memory."""
