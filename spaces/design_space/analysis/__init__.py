"""What a trace's decisions say of its program before anything is replayed: threads, memory."""
