"""Errors of the command line."""


class UsageError(Exception):
    """A request that the command line cannot serve, in one sentence for its user."""
