"""The admin port: metrics, health, the effective configuration, the last exchanges."""
