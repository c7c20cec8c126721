"""Count the false alarms of the hearing in many hours of sound, each piece of five minutes made by a seed.

It prints a line for each piece with a false alarm, with the seed that makes it again, and a line for each hour. The
exit code is 1 if there was any.
"""

import argparse
import json
import time

from embereye.addons.sound.bench import FIRST, PIECE, listen_to_noise
from embereye.addons.sound.bench.judging import NOISES
from embereye.process.lifecycle import UserError
from embereye_bench.detection.score_folds import poisson

PIECES_AN_HOUR = round(3600 / PIECE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--hours", type=float, default=24.0, help="of sound in all (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=FIRST, help="of the first piece (default: %(default)s)")
    parser.add_argument(
        "--kinds", default="speech,music", help=f"in turn, of {', '.join(NOISES)} (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON at the end")


def run(arguments: argparse.Namespace) -> int:
    """Listen, and print the false alarms with their upper limit."""
    kinds = [kind.strip() for kind in arguments.kinds.split(",") if kind.strip()]
    if not kinds or (unknown := next((kind for kind in kinds if kind not in NOISES), "")):
        raise UserError(f'--kinds "{unknown}" is not one of {", ".join(NOISES)}')
    pieces = max(1, round(arguments.hours * PIECES_AN_HOUR))
    false = dict.fromkeys(kinds, 0)
    seconds = dict.fromkeys(kinds, 0.0)
    began = time.process_time()
    for number in range(pieces):
        seed, kind = arguments.seed + number, kinds[number % len(kinds)]
        _, alarms, _ = listen_to_noise(seed, kind)
        seconds[kind] += PIECE
        false[kind] += alarms
        if alarms and not arguments.json:
            print(f"seed {seed}: {kind}: {alarms} false", flush=True)
        if (number + 1) % PIECES_AN_HOUR == 0 and not arguments.json:
            print(_summary(seconds, false, time.process_time() - began), flush=True)
    if arguments.json:
        print(json.dumps({"seconds": seconds, "false": false, "seed": arguments.seed}))
    else:
        print(_summary(seconds, false, time.process_time() - began))
    return 1 if any(false.values()) else 0


def _summary(seconds: dict[str, float], false: dict[str, int], cpu: float) -> str:
    hours, alarms = sum(seconds.values()) / 3600, sum(false.values())
    parts = ", ".join(f"{value / 3600:.1f} h of {kind}: {false[kind]}" for kind, value in seconds.items())
    most = poisson(alarms)[1] / hours
    return (
        f"{alarms} false alarms in {hours:.1f} h ({parts}); 95 % sure of at most {most:.3f} an hour; "
        f"{cpu / 60:.1f} min of CPU"
    )
