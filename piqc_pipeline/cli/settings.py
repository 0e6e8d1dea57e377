"""`piqc settings`: what is configured, and where did it come from?"""

import json

import click

from piqc_pipeline.cli.output import format_option
from piqc_pipeline.settings import describe, load_settings


@click.command("settings")
@format_option("table", "json")
def settings_command(form: str) -> None:
    """Print the effective settings with unit, range and origin; secrets are hidden."""
    rows = describe(load_settings())
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']}={row['value']}  ({row['origin']})")
        click.echo(f"    {row['help']}{' Range: ' + row['range'] + '.' if row['range'] else ''}")
