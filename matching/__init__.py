"""Which subscriptions a notification matches."""
