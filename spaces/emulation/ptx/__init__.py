"""PTX in C++: its text, and its instructions by what they are about."""
