"""The data port. With `upstreams` and the admin port, the only home of sockets."""
