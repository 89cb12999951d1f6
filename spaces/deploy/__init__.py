"""From records to what runs: modules, libraries, databases, comparisons."""
