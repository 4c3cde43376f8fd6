"""Framing: where one event ends and the next begins, in any split of the bytes. No I/O, no clock, no exceptions.

Every framer takes bytes with `feed` and gives the whole units they completed; `finish` says that no more bytes come and
gives what only the end completes. The units do not depend on how the bytes were split. What cannot be read is left out
and counted in `errors`, under one of these reasons:

`oversized` a unit longer than MAX_EVENT; `truncated` the bytes ended inside a unit; `json` text that is no JSON where
JSON must be; `crc`, `frame` a damaged AWS event stream; `protocol`, `coding`, `bomb` a WebSocket that breaks RFC 6455,
a compressed message that cannot be decoded, or one that expands without end.
"""

from __future__ import annotations

MAX_EVENT = 1024 * 1024
"""Bytes that one pending unit may hold. A longer one is skipped and counted; those after it are read."""
