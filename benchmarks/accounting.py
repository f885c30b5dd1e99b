"""Write an accounting file as sacct might: python benchmarks/accounting.py 1000000 > sacct.txt."""

from __future__ import annotations

import sys

from divvy.cli.bench_audit import ROWS, write_accounting

if __name__ == "__main__":
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    gpus = write_accounting(sys.stdout, rows)
    print(f"{rows} rows, {gpus} GPUs in all", file=sys.stderr)
