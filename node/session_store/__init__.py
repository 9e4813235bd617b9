"""What a proxy has on its own disk."""
