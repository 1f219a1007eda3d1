"""edgeq: which framework, at which precision, is right for this device, and why."""

__version__ = "0.1.0"
