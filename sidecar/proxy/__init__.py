"""What happens to a request: admit → route → upstream, and the relay of the answer back to the application."""
