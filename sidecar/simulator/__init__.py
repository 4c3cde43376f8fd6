"""A simulated LLM API: exact in time, faulty on request, and honest about what it really did."""
