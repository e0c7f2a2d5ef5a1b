"""``python -m crowdwise``."""

from crowdwise.cli.main import main

if __name__ == "__main__":
    main()
