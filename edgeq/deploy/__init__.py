"""Two machines, one workflow: what an exporting machine made goes to a device as one file, and its records come back."""
