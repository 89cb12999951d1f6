"""From records to programs that run: modules, libraries, databases, comparisons."""
