"""The registry on etcd 3: the only room that knows aetcd and gRPC.

aetcd's calls are used, but neither its watch (watch_stream.py) nor its renewal of leases by a thread
(lease_renewer.py), and it does not know TLS (connection.py).
"""

from federation.etcd.connection import DEADLINE_S, endpoints_of
from federation.etcd.lease_renewer import EtcdLeaseRenewer
from federation.etcd.registry import EtcdLease, EtcdRegistry

__all__ = ["DEADLINE_S", "EtcdLease", "EtcdLeaseRenewer", "EtcdRegistry", "endpoints_of"]
