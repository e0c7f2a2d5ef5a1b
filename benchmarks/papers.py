"""The papers' tables on images: `crowdwise bench papers` with the plan beside this file.

python benchmarks/papers.py --out results.jsonl --images FOLDER [--only max-mig-cifar10] [--seeds 0] [--jobs 3]
"""

from __future__ import annotations

import sys
from pathlib import Path

from crowdwise.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["bench", "papers", str(Path(__file__).with_name("papers.toml"))]
    main()
