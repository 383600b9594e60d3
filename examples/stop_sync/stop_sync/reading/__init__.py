"""Sources into rows, as a stream: a source may be larger than the memory."""
