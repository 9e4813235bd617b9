"""What a site's log means: the one fold that every reader shares, and which log it is."""
