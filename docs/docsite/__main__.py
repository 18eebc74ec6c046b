"""`make docs`: build the site into `site/`, or say what is wrong with it."""

import sys
import time
from pathlib import Path

from docsite.pages import ROOT, SiteError
from docsite.site import build


def main() -> int:
    target = ROOT / "site" if len(sys.argv) < 2 else Path(sys.argv[1])
    began = time.monotonic()
    try:
        pages = build(target)
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(pages)} pages in {target}, in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
