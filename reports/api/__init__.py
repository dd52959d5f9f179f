"""What `import bbrscope` gives: a store's runs as polars frames, charts and findings."""
