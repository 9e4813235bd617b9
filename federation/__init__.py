"""Sites: their logs, the links between them, and the registry that all proxies share."""
