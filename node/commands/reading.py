"""Reading a notification that somebody typed."""

from __future__ import annotations

from waypost.errors import BadNotification
from waypost.notification import Notification
from waypost.subscription.batch import NotJson, notification_from_json, read_json


def notification_from_text(text: str) -> Notification:
    """Return the notification of a JSON object.

    Raises:
        BadNotification: it is none; `field` names the attribute.
        BadMessage: it has a number that no type holds.
    """
    try:
        return notification_from_json(read_json(text))
    except NotJson as error:
        raise BadNotification(str(error)) from None
