"""The loops are read, never run: pytest must not import them."""

collect_ignore_glob = ["wrong/*", "right/*"]
