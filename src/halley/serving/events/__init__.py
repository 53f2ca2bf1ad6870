"""The loop of the event simulation of one engine: continuous batching with chunked prefill and a paged cache."""
