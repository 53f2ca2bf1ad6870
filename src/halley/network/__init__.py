"""Networks of any shape: graphs of links, the topologies that build them, collectives on them, their times and bounds."""
