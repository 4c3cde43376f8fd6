"""llm-latency-sidecar: a proxy beside an application that measures where the time of its LLM API calls goes."""

__version__ = "0.1.0"
