"""A load generator: payments at a steady rate, with duplicates, late events and poison, and a ledger of what was sent.

Message number n depends on the seed and n alone. The ledger has a line for each message that the broker has confirmed.
"""

import argparse
import heapq
import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

START = datetime(2024, 3, 15, 12, tzinfo=UTC)
STEP = timedelta(milliseconds=300)  # of event time, per message
PERIOD = 0.1
# At most five minutes of event time: half of the watermark of gold, so that no event is too late for it.
LATEST = 1000
DUPLICATES, LATE, POISON = 0.05, 0.1, 0.004
POISONED = (b"no JSON", b'{"payment": "p1", "cents": "many"}', b"\xff\xfe", b"[1, 2]", b'{"payment": "p')


class Message(NamedTuple):
    """A message to send. A poisoned one has no key."""

    key: str | None
    value: bytes


def messages(seed: int) -> Iterator[Message]:
    """Yield messages for ever."""
    waiting: list[tuple[int, int, Message]] = []
    numbers, drawn = count(), random.Random(seed)
    for position in count():
        while not waiting or waiting[0][0] > position:
            for due, message in _payment(drawn, position):
                heapq.heappush(waiting, (due, next(numbers), message))
        yield heapq.heappop(waiting)[2]


def _payment(drawn: random.Random, position: int) -> Iterator[tuple[int, Message]]:
    """Yield the messages of a new payment, each with the position at which it is due, or a poisoned one."""
    if drawn.random() < POISON:
        yield position, Message(None, drawn.choice(POISONED))
    key, created = f"p{drawn.getrandbits(48):012x}", START + position * STEP
    merchant, cents = f"m{drawn.randrange(20)}", drawn.randrange(100, 100_000)
    after = 0
    for sequence, status in enumerate(("authorized", drawn.choice(("captured", "captured", "declined"))), 1):
        at = START + (position + after) * STEP
        value = {"payment": key, "sequence": sequence, "status": status, "merchant": merchant, "cents": cents}
        times = {"created_at": created.isoformat(), "at": at.isoformat()}
        message = Message(key, json.dumps({**value, **times}).encode())
        due = position + after
        if drawn.random() < LATE:
            due += min(int(drawn.expovariate(1 / 200)), LATEST - 300)
        yield due, message
        if drawn.random() < DUPLICATES:
            yield due + drawn.randrange(1, 200), message
        after += drawn.randrange(1, 50)


class Load:
    """Sends messages at a rate, from a thread of its own: as many as it is asked for, until it is stopped."""

    def __init__(self, servers: str, topic: str, ledger: Path, seed: int = 1, rate: float = 100) -> None:
        # It says nothing about a broker that is just starting or stopping.
        quiet = {"log_level": 0}
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True, **quiet})
        self._topic, self._ledger, self._rate = topic, ledger.open("w"), rate
        self._messages = messages(seed)
        self._wanted = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def ask(self, count: int) -> None:
        """Ask for so many more messages."""
        self._wanted += count

    def wait(self) -> None:
        """Wait until all messages that it was asked for are sent, and stop."""
        while self._wanted > 0:
            time.sleep(PERIOD)
        self.stop()

    def stop(self) -> None:
        """Stop, and wait until the broker has all messages that were sent."""
        self._stopping.set()
        self._thread.join()

    def send(self, count: int) -> None:
        """Send so many messages, and wait until the broker has them."""
        for message in islice(self._messages, count):
            self._producer.produce(self._topic, message.value, message.key, on_delivery=self._note)
        self._producer.flush()
        self._ledger.flush()

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD):
            count = min(self._wanted, int(self._rate * PERIOD))
            self.send(count)
            self._wanted -= count

    def _note(self, error: object, message: object) -> None:
        if error:
            raise SystemExit(f"a message was not sent: {error}")
        place = {"partition": message.partition(), "offset": message.offset()}
        self._ledger.write(json.dumps({**place, "value": message.value().decode("latin-1")}) + "\n")


def main() -> None:
    """Send so many messages, or until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=100, help="messages per second")
    parser.add_argument("--messages", type=int, default=1_000_000)
    given = parser.parse_args()
    load = Load(given.servers, given.topic, given.ledger, given.seed, given.rate)
    load.ask(given.messages)
    load.start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: load.ask(-given.messages))
    load.wait()


if __name__ == "__main__":
    main()
