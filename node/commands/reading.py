"""Reading a notification that somebody typed."""

from __future__ import annotations

import json

from waypost.errors import BadNotification
from waypost.notification import Notification
from waypost.subscription.batch import notification_from_json


def notification_from_text(text: str) -> Notification:
    """Return the notification of a JSON object. Raises BadNotification, which names the attribute."""
    try:
        return notification_from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise BadNotification(f"no JSON: {error}") from None
