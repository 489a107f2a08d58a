"""How a host would do with so many sessions: the server's scheduler in virtual time."""
