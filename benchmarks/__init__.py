"""``python -m benchmarks``: edgeq's figures beside the frameworks' own tools. A module is a group of rows."""
