"""How sessions keep level with the site's log, and are stored."""
