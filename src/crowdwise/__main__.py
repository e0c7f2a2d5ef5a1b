"""``python -m crowdwise``."""

from crowdwise.cli import main

if __name__ == "__main__":
    main()
