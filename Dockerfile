# Two images from one file:
#   docker build --target predictor -t capacity-predictor:0.1.0 .   the capacity predictor: no Prophet, pandas or Dagster
#   docker build --target piqc -t piqc:0.1.0 .                      the whole program: scan, pipeline, Dagster
# (A third, `inference`, is the small service of loadtest/.) Versions and hashes come from requirements.lock, the
# index from pip's own configuration.
ARG BASE=python:3.11-slim

FROM ${BASE} AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore HOME=/home/piqc
RUN echo 'piqc:x:65532:65532::/home/piqc:/usr/sbin/nologin' >> /etc/passwd \
    && mkdir -p /home/piqc && chown 65532:65532 /home/piqc
WORKDIR /app
COPY requirements.lock docker/locked.py ./

FROM base AS predictor
RUN python locked.py requirements.lock click fastapi hatchling httptools httpx msgspec numpy orjson prometheus-client \
    pydantic pydantic-settings tenacity uvicorn uvloop > needed.txt \
    && pip install --no-deps --require-hashes -r needed.txt
COPY pyproject.toml README.md LICENSE ./
COPY piqc_pipeline ./piqc_pipeline
RUN pip install --no-deps --no-build-isolation . && python -m compileall -q piqc_pipeline
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["piqc"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]

FROM predictor AS inference
COPY loadtest ./loadtest
ENTRYPOINT ["python", "-m", "loadtest.inference_service"]
CMD ["--host", "0.0.0.0", "--port", "9000"]

FROM base AS piqc
COPY pyproject.toml README.md LICENSE ./
RUN mkdir piqc_pipeline && touch piqc_pipeline/__init__.py \
    && python locked.py requirements.lock hatchling . > needed.txt \
    && pip install --no-deps --require-hashes -r needed.txt
COPY piqc_pipeline ./piqc_pipeline
COPY workspace.yaml ./
RUN pip install --no-deps --no-build-isolation .
ENV DAGSTER_HOME=/home/piqc/dagster_home PIQC_DATA_DIR=/home/piqc/data
USER 65532:65532
ENTRYPOINT ["piqc"]
CMD ["--help"]
