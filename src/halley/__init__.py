"""Halley predicts and optimises how workloads run on accelerators, and proves it."""
