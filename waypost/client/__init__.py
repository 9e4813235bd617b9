"""The client library: a pure machine, an asyncio shell around it, and a blocking facade."""
