"""Configuration: one YAML file, flags and environment, read into frozen values."""
