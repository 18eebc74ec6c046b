"""The program of a process that uses a store: `actors` has what it does."""

import json
import sys

from chaos.actors import main
from support.process_worker import Orders

if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
