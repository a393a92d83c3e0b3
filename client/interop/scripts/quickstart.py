"""The synchronous program of the published client's README, with an end: three records, then it leaves its blocks.

Usage: quickstart.py ADDRESS CA_FILE STREAM; prints one JSON object per record.
"""

import json
import sys

import felix

addr, ca, stream = sys.argv[1:]

with felix.Client(addr, tenant_id="t1", token="", ca_file=ca) as client:
    with client.subscribe("t1", "default", stream) as events:
        for word in (b"hello", b"from", b"python"):
            client.publish("t1", "default", stream, word)
        for event in events:
            print(json.dumps({"payload": event.payload.decode(), "offset": event.offset}), flush=True)
            if event.payload == b"python":
                break
