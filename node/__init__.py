"""A proxy as a process: the shell around the engine."""
