# Two images from one file:
#   docker build --target predictor -t capacity-predictor:0.1.0 .   the capacity predictor: no Prophet, pandas or Dagster
#   docker build --target piqc -t piqc:0.1.0 .                      the whole program: scan, pipeline, Dagster
# Versions come from requirements.lock (with its hashes), the index from pip's own configuration.
ARG BASE=python:3.11-slim

FROM ${BASE} AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
RUN useradd --system --uid 65532 --home-dir /home/piqc --create-home piqc
WORKDIR /app

FROM base AS predictor
COPY requirements.lock ./
# The lock is a constraint here: only these packages and what they need, each checked against its hash.
RUN pip install -c requirements.lock \
    click fastapi httpx httptools msgspec numpy orjson prometheus-client pydantic pydantic-settings tenacity uvicorn uvloop
COPY pyproject.toml README.md LICENSE ./
COPY piqc_pipeline ./piqc_pipeline
RUN pip install hatchling && pip install --no-deps --no-build-isolation . && python -m compileall -q /app
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["piqc"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]

FROM base AS piqc
COPY requirements.lock ./
COPY pyproject.toml README.md LICENSE ./
COPY piqc_pipeline ./piqc_pipeline
RUN pip install hatchling && pip install --no-build-isolation -c requirements.lock .
ENV DAGSTER_HOME=/home/piqc/dagster_home PIQC_DATA_DIR=/home/piqc/data
USER 65532:65532
ENTRYPOINT ["piqc"]
CMD ["--help"]
