"""Times of collectives on a network: step tables, closed forms, schedules."""
