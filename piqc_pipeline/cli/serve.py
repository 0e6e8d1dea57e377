"""`piqc serve`: run the capacity predictor."""

from pathlib import Path

import click


@click.command("serve")
@click.option(
    "--artifact", type=click.Path(path_type=Path), help="Folder of the promoted artifact; else DATA_DIR/model/current."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 in a pod.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True, help="Port to listen on.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="File with the bearer token that clients must send."
)
@click.option("--prometheus-url", help="Prometheus with live demand; else PIQC_PROMETHEUS_URL. None: forecasts only.")
@click.option(
    "--limits",
    type=click.Path(path_type=Path),
    help='JSON file: {"NAMESPACE/NAME": {"min_replicas": 2, "max_replicas": 12}}; else DATA_DIR/manifests/limits.json.',
)
@click.option("--access-log", is_flag=True, help="Log every request (costs about a third of the speed).")
@click.option("--debug", is_flag=True, help="Show tracebacks and debug logs on stderr.")
def serve_command(
    artifact: Path | None,
    host: str,
    port: int,
    token_file: Path | None,
    prometheus_url: str | None,
    limits: Path | None,
    access_log: bool,
    debug: bool,
) -> None:
    """Answer KEDA and people with replicas and forecasts.

    /v1/desired/NAMESPACE/NAME gives KEDA the replicas wanted now; /predict?workload=NAMESPACE/NAME&horizon=30m the
    load at one moment ahead. Beside them: /v1/workloads, /metrics, /healthz, /readyz, /openapi.json.
    """
    from piqc_pipeline.predictor.run import serve
    from piqc_pipeline.settings import load_settings

    settings = load_settings(**({"prometheus_url": prometheus_url} if prometheus_url else {}))
    serve(
        settings,
        artifact or settings.data_dir / "model" / "current",
        host=host,
        port=port,
        token_file=token_file,
        limits_file=limits,
        access_log=access_log,
        debug=debug or bool(click.get_current_context().find_root().ensure_object(dict).get("debug")),
    )
