"""An embedder as all workers share it."""
