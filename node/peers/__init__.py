"""Connections to other proxies and sites."""
