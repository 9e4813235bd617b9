"""Links between sites: what goes over one, and its two ends as pure machines."""
