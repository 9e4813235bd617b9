"""The client library: the protocol without I/O, an asyncio shell around it, and a blocking facade."""
