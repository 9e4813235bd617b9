"""What all rooms of the engine share: one writer for each piece of state."""
