"""`python -m cluster` is the command `tuner`."""

from cluster.cli import main

if __name__ == "__main__":
    main()
