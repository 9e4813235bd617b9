"""A gateway to peers of a propagate service: JXTA's messages in, notifications out, and back."""
