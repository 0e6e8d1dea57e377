"""How does the capacity predictor serve a day that passes faster? The shipped service with its windows divided.

python -m loadtest.fast_predictor --artifact /model --limits /piqc/manifests/limits.json --speed 25
"""

import argparse
from dataclasses import replace
from pathlib import Path

from piqc_pipeline.predictor.anchor import LiveAnchor
from piqc_pipeline.predictor.engine import Engine, EngineOptions
from piqc_pipeline.predictor.lean import load
from piqc_pipeline.predictor.limits_watch import LimitsWatch
from piqc_pipeline.predictor.logs import log_json
from piqc_pipeline.predictor.reload import ArtifactWatch
from piqc_pipeline.predictor.service import create_service
from piqc_pipeline.scaling.policy import ScalingPolicy, policy_from_settings
from piqc_pipeline.settings import load_settings


def faster(policy: ScalingPolicy, speed: float) -> ScalingPolicy:
    """The same rule for time that passes `speed` times as fast."""
    return replace(
        policy,
        lead_seconds=policy.lead_seconds / speed,
        down_window_seconds=max(1, round(policy.down_window_seconds / speed)),
        period_seconds=max(1, round(policy.period_seconds / speed)),
    )


def main() -> None:
    """Serve until killed."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--limits", type=Path, required=True)
    parser.add_argument("--speed", type=float, default=25.0)
    given = parser.parse_args()
    log_json("info")
    options = EngineOptions(faster(policy_from_settings(load_settings()), given.speed), 1.0, LimitsWatch(given.limits))
    engine = Engine(ArtifactWatch(given.artifact, load), None, LiveAnchor(), options)
    uvicorn.run(create_service(engine, None), host="0.0.0.0", port=8080, access_log=False, log_config=None)


if __name__ == "__main__":
    main()
