"""The search for the best deployment: the question, its candidates, pools, and the search with its certificate."""
