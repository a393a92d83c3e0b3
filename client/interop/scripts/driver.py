"""Carries out commands on the published Felix client and says what came of them.

Usage: driver.py sync|async

Each line of standard input is one command, a JSON object: "id" for the answer, "do" for the method below, the rest
for its arguments. Each line of standard output is one answer: the same "id", and either the results or "error". Commands run
side by side; whoever wants an order waits for the answer. Bytes travel as base64. The end of standard input ends the driver.
"""

import asyncio
import base64
import concurrent.futures
import importlib.metadata
import json
import os
import sys

import felix

# Bounds the synchronous calls that wait at the same time.
THREADS = 32


def say(line):
    """Prints a line whole. With PYTHONUNBUFFERED print loses what a pipe does not take at once, as when the process is stopped meanwhile."""
    left = memoryview((json.dumps(line) + "\n").encode())
    while left:
        left = left[os.write(1, left):]


def text(data):
    return base64.b64encode(data).decode()


def data(text):
    return None if text is None else base64.b64decode(text)


def describe_error(error):
    return {
        "type": type(error).__name__,
        "felix": isinstance(error, felix.FelixError),
        "code": getattr(error, "code", None),
        "retry": getattr(error, "retry", None),
        "text": str(error),
    }


def describe_event(item):
    """An event of a subscription: a record, or for all shards also news of a shard."""
    if isinstance(item, felix.Event):
        return {
            "kind": "record",
            "offset": item.offset,
            "skipped": item.skipped_before,
            "scope": [item.tenant_id, item.namespace, item.stream],
            "payload": text(item.payload),
        }
    if isinstance(item, felix.ShardRecord):
        return {**describe_event(item.event), "shard": item.shard}
    return {"kind": type(item).__name__, "shard": item.shard, "text": str(getattr(item, "error", ""))}


class Driver:
    def __init__(self, surface):
        self.synchronous = surface == "sync"
        self.client = None
        self.subscriptions = {}

    async def call(self, function, *args, **named):
        """Calls a method of the client: on a thread, or awaiting it."""
        if self.synchronous:
            return await asyncio.to_thread(function, *args, **named)
        return await function(*args, **named)

    async def connect(self, addrs, tenant, token, ca):
        connect = felix.Client if self.synchronous else felix.AsyncClient.connect
        self.client = await self.call(connect, addrs, tenant_id=tenant, token=token, ca_file=ca)
        self.tenant = tenant
        return {}

    async def endpoints(self):
        return {"endpoints": await self.call(self.client.endpoints)}

    async def publish(self, stream, records, keys=None, ack="per_message", at_least_once=False, together=False):
        """Publishes records, each with its key if there are keys; one after the other, or all of them together."""
        named = {"ack": ack, "at_least_once": at_least_once}
        calls = [(data(record), {**named, **({"key": data(keys[i])} if keys else {})}) for i, record in enumerate(records)]
        scope = (self.tenant, "default", stream)
        if together:
            publishes = (self.call(self.client.publish, *scope, payload, **args) for payload, args in calls)
            return {"offsets": await asyncio.gather(*publishes)}
        if self.synchronous:
            def publish_all():
                return [self.client.publish(*scope, payload, **args) for payload, args in calls]
            return {"offsets": await asyncio.to_thread(publish_all)}
        return {"offsets": [await self.client.publish(*scope, payload, **args) for payload, args in calls]}

    async def stream_shards(self, stream):
        return {"shards": await self.call(self.client.stream_shards, self.tenant, "default", stream)}

    async def cache_get(self, cache, key):
        value = await self.call(self.client.cache_get, self.tenant, "default", cache, key)
        return {"value": None if value is None else text(value)}

    async def subscribe(self, name, stream, start=None):
        self.subscriptions[name] = await self.call(self.client.subscribe, self.tenant, "default", stream, start=start)
        return {}

    async def subscribe_sharded(self, name, stream, start=None, resume=None):
        """Subscribes to every shard. resume has the last offset seen per shard."""
        resume = None if resume is None else {int(shard): offset for shard, offset in resume.items()}
        subscription = await self.call(
            self.client.subscribe_sharded, self.tenant, "default", stream, start=start, resume=resume)
        self.subscriptions[name] = subscription
        return {"shards": subscription.shards}

    async def next(self, name, count, timeout):
        """Up to count events, fewer when none comes within timeout seconds or the subscription has ended."""
        subscription = self.subscriptions[name]
        events = []
        if self.synchronous:
            def read():
                while len(events) < count and (event := subscription.next_event(timeout=timeout)) is not None:
                    events.append(describe_event(event))
                return subscription.closed
            return {"events": events, "closed": await asyncio.to_thread(read)}
        while len(events) < count and (event := await subscription.next_event(timeout=timeout)) is not None:
            events.append(describe_event(event))
        closed = getattr(subscription, "closed", None)  # the merged asynchronous subscription has no such property
        return {"events": events, "closed": None if closed is None else await closed}

    async def positions(self, name):
        return {"positions": await self.call(self.subscriptions[name].positions)}

    async def unsubscribe(self, name):
        await self.call(self.subscriptions[name].close)
        return {}

    async def disconnect(self):
        """Leaves the client's with block, twice, and lets go of everything of it: that is how a client closes."""
        for _ in range(2):
            if self.synchronous:
                await asyncio.to_thread(self.client.__exit__, None, None, None)
            else:
                await self.client.__aexit__(None, None, None)
        self.client = None
        self.subscriptions.clear()
        return {}

    async def answer(self, line):
        command = json.loads(line)
        answer = {"id": command.pop("id")}
        try:
            answer |= await getattr(self, command.pop("do"))(**command)
        except Exception as error:
            answer["error"] = describe_error(error)
        say(answer)


async def main():
    loop = asyncio.get_running_loop()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(THREADS))
    driver = Driver(sys.argv[1])
    say({"version": importlib.metadata.version("felix-client"), "module": felix.__version__})
    running = set()
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        while line := await loop.run_in_executor(reader, sys.stdin.readline):
            task = asyncio.create_task(driver.answer(line))
            running.add(task)
            task.add_done_callback(running.discard)
    if running:
        await asyncio.wait(running, timeout=5)


asyncio.run(main())
os._exit(0)  # see quickstart_async.py
