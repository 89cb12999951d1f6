"""Child processes: started, asked, watched, ended."""
