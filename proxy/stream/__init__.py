"""How sessions catch up with the site's log, and are stored."""
