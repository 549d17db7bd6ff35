"""Talking to a model through the Messages API, for agents that do.

Owns how a conversation is written for the API, how one request is asked until it is answered, and
what it costs. Which tools there are, and when anything is asked, is the agent's business.
"""

KEY = "ANTHROPIC_API_KEY"  # the environment variable that holds it, in the process that asks alone
