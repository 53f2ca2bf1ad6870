"""Pipelines and iterations of training: stages, schedules, their exact time, data parallelism."""
