"""Discovery of proxies on the local network, by mDNS."""
