"""Talking to a model through the Messages API, for agents that do.

Owns how a conversation is written for the API, how one request is asked until it is answered, and
what it costs. Which tools there are, and when anything is asked, is the agent's business.
"""
