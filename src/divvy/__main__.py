"""Run the command line with ``python -m divvy``."""

from divvy.cli import main

if __name__ == "__main__":
    main()
