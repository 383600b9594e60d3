"""`python -m fencepost.engine_worker`: carry out the order in `FENCEPOST_ORDER`, or in the file that is named."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from fencepost.engine_worker import carry_out, open_gate
from fencepost.engine_worker.lingering import linger
from fencepost.errors import FencepostError
from fencepost.runs.engines import Order

log = logging.getLogger("fencepost")


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else os.environ.get("FENCEPOST_ORDER")
    if not text:
        log.error("no order: set FENCEPOST_ORDER to its JSON, or name a file")
        return 64
    try:
        order = Order.from_json(text)
        verdict = carry_out(order, own_process=True)
        if verdict.kind == "refused":
            asyncio.run(wait_for_the_other(order))
    except FencepostError as error:
        log.error("%s", error)
        return error.exit_code
    log.info("%s", verdict.kind)
    return verdict.exit_code


async def wait_for_the_other(order: Order) -> None:
    gate = await open_gate(order)
    try:
        await linger(order, gate)
    finally:
        await gate.close()


if __name__ == "__main__":
    sys.exit(main())
