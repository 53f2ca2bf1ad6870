"""Published claims tried with Halley: one module per study, each with its page, figure and table in docs/studies."""
