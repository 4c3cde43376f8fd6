"""Connections to the APIs: dialling, pooling and the HTTP/1.1 leg. With `listeners`, the only home of sockets."""
