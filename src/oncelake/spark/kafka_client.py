"""Ask a Kafka broker about its topics, without a JVM. Nothing is raised: what cannot be asked is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TIMEOUT = 5.0


def topic_offsets(
    topics: Iterable[str], settings: Mapping[str, Any], isolation: str
) -> dict[tuple[str, int], tuple[int, int]] | None:
    """Return the first and the next offset of every partition.

    None without a client, if no broker answers, or if there is no such topic: the stream itself will say what is wrong.
    """
    try:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {**settings, "group.id": "oncelake", "isolation.level": isolation, "log_level": 0}, logger=_SILENT
        )
        try:
            found = {}
            for topic in topics:
                known = consumer.list_topics(topic, timeout=TIMEOUT).topics[topic]
                if known.error is not None:
                    return None
                for number in known.partitions:
                    found[topic, number] = consumer.get_watermark_offsets(
                        TopicPartition(topic, number), timeout=TIMEOUT
                    )
            return found
        finally:
            consumer.close()
    except Exception:  # noqa: BLE001  whatever the client raises
        return None


def topic_ids(topics: Iterable[str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of topics: one that was deleted and created again has another, and offsets of its own."""
    try:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({**settings, "log_level": 0}, logger=_SILENT)
        asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
        return {topic: str(found.result(TIMEOUT).topic_id) for topic, found in asked.items()}
    except Exception:  # noqa: BLE001  whatever the client raises
        return {}


class _Silent:
    """A logger that says nothing: a broker that is away is no news here."""

    def log(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    debug = info = warning = error = critical = log


_SILENT = _Silent()
