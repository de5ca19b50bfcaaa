"""The watcher: a running job is recorded as a trace, and judged by the rules while it runs."""
