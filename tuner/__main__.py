"""`python -m tuner` is the command `tuner`."""

from tuner.search_path import put_current_folder_last

if __name__ == "__main__":
    put_current_folder_last()
    from cluster.app.cli import main

    main()
