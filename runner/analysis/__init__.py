"""Analysis without a GPU: what a kernel uses, what it does wrong, and on which line of its source.

`findings` holds the words that every analysis answers with; each other module is one analysis.
"""
