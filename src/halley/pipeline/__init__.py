"""Pipelines and training iterations: stages, schedules, their exact times, data parallelism."""
