"""Metrics as Prometheus reads them, in the format that it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from node.http.metrics import METRICS, Described, Number, Read
from node.shell.metrics_snapshot import NodeSnapshot
from node.shell.node import Node
from proxy.core.counters import Histogram
from waypost.errors import Unreachable


class NodeCollector(Collector):
    """Reads the metrics of the node at each scrape."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the node, read now; before the node has started, those that it has then."""
        node_snapshot = NodeSnapshot(self._node)
        for described in METRICS:
            with suppress(Unreachable):
                yield _family(described, described.read(node_snapshot))

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are read at each scrape, and the node may not have started yet."""
        return []


def _family(metric: Described, read: Read) -> Metric:
    values: Mapping[Any, Number] = read if isinstance(read, Mapping) else {(): read}
    family = _FAMILIES[metric.kind](metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
    for labels, value in values.items():
        named = (labels,) if isinstance(labels, str) else labels
        if isinstance(family, HistogramMetricFamily):
            assert isinstance(value, Histogram)
            family.add_metric(named, _buckets(value, metric.scale), value.total * metric.scale)
        else:
            assert not isinstance(value, Histogram)
            family.add_metric(named, value * metric.scale)
    return family


_FAMILIES: dict[str, type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _buckets(spread: Histogram, scale: float) -> list[tuple[str, float]]:
    """Return the cumulative count of each bucket, by its upper bound; +Inf is last."""
    names = [*(str(float(round(bound * scale, 9))) for bound in spread.bounds), "+Inf"]
    return list(zip(names, accumulate(spread.counts), strict=True))


def make_registry(node: Node) -> CollectorRegistry:
    """Return the registry of the metrics of a node and of its process."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(node))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics, encoded as an Accept header asks for, and their content type.

    Args:
        accept: the value of the header; "": there is none.
    """
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # A part of the header that cannot be read asks for no format that there is.
        encode, content_type = choose_encoder("")
    return encode(registry), content_type
