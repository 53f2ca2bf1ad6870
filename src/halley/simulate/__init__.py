"""Discrete-event simulation of a mapping tree: transfers, computes and collective steps are tasks, resources are queues."""
