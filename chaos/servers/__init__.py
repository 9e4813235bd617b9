"""The real parts, one launcher a file: Kafka, etcd, toxiproxy. Used by the tests and by the demo.

`parts` fetches and builds them into a cache folder; `process` keeps each child on a leash, so that none
outlives whoever started it.
"""
