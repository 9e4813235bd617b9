"""What the commands of the command line do, one file each; loaded when called, so that each starts quickly."""
