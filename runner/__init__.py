"""The engine: evaluate kernels, drive agents, keep the log. It never imports Django.

The evaluation side (`languages`, `evaluate`) needs only the standard library, numpy, torch and
triton, so a bare GPU host runs it from a checkout.
"""

__version__ = "0.1.0"
