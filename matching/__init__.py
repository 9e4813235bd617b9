"""Matching: the subscriptions that a notification matches."""
