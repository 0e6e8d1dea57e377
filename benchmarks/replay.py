"""Does our rule leave fewer minutes over 90 % than reacting, at equal GPU-hours? Two lead times, two scales, one trace.

    python -m benchmarks.replay [TRACE.parquet] [--lead 600,300] [--peak 8,30] [--tolerance 0] [--json]

The trace is PIQC_REPLAY_TRACE, else the shared copy of ServeGen (Apache-2.0). Series that repeat another (the trace's
own note: m-large/client-148 is client-112) are counted once.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from piqc_pipeline.errors import PiqcError
from piqc_pipeline.forecast.trace_file import read_trace
from piqc_pipeline.scaling.policy import ScalingPolicy
from piqc_pipeline.scaling.replay import ReplayOptions, replay, to_json

DEFAULT_TRACE = Path(__file__).parents[2] / "shared" / "data" / "traces" / "servegen.parquet"
REPEATED = ("servegen/m-large/client-148",)
RULE = {"quantile": 0.95, "u_after_removal": 0.90}
"""What `policy_from_settings` gives by default."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path, default=Path(os.environ.get("PIQC_REPLAY_TRACE", DEFAULT_TRACE)))
    parser.add_argument("--lead", default="600,300")
    parser.add_argument("--peak", default="8,30")
    parser.add_argument("--tolerance", type=float, default=0.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        series = [one for one in read_trace(given.trace) if one.workload not in REPEATED]
    except PiqcError as error:
        print(f"{error}; name a trace, or set PIQC_REPLAY_TRACE", file=sys.stderr)
        return 1
    rows = []
    for lead in (float(text) for text in given.lead.split(",")):
        for peak in (float(text) for text in given.peak.split(",")):
            begin = time.process_time()
            options = ReplayOptions(peak_replicas=peak, tolerance=given.tolerance, injections=())
            body = to_json(replay(series, ScalingPolicy(lead_seconds=lead, **RULE), options))
            row = {"lead_seconds": lead, "peak": peak, "cpu_seconds": round(time.process_time() - begin, 1)}
            rows.append(row | {"pooled": body["pooled"], "recommended": _recommended(body)})
            if not given.json:
                print(json.dumps(rows[-1]), flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))
    return 0


def _recommended(body: dict) -> dict[str, int]:
    names = [one["recommended"] for one in body["series"]]
    return {name: names.count(name) for name in sorted(set(names))}


if __name__ == "__main__":
    sys.exit(main())
