"""Event simulation of a mapping tree: its transfers, computes and collective steps as tasks, its resources as queues."""
