"""What tools answer: summaries of what is known of a run, sized for a context window.

One module each for candidates, sources, evaluations and analyses. They read the loop and change
nothing; what a summary leaves out is in the details of the answer.
"""
