"""The referee of time: the search's winners for a published list of problems, by formula and by event simulation."""
