"""Commands that talk to a running server: launch, sessions, stop, logs, link, drain."""
