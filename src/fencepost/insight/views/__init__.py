"""What the command line and the service show: records as JSON, the overview, and how times are asked for."""
