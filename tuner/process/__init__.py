"""Child processes: started, called, watched, ended."""
