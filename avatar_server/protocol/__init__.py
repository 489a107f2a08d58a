"""What the processes, and the page, say to each other."""
