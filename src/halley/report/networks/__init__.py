"""Networks, systems and collectives as tables and figures."""
