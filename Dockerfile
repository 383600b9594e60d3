# Two images of one file.
#
#   docker build --target fencepost -t fencepost .     Fencepost with all stores and the service; put your app into /app
#   docker build --target stop-sync -t stop-sync .     the same with examples/stop_sync, for docker-compose.yml
#
# Whatever builds stays behind in `build`: the images have Python, one virtual environment, and a user without rights.
#
# Packages are installed by hash, and the hashes are those of the files for CPython 3.11 on x86-64: for another Python or
# processor make requirements-*.txt anew, as their first lines say. To pin the base image, too, give the digest that your
# registry shows: --build-arg PYTHON=3.11-slim-bookworm@sha256:…

ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1
RUN python -m venv /opt/fencepost && python -m venv /opt/build
WORKDIR /src
COPY requirements-build.txt requirements-image.txt ./
RUN /opt/build/bin/pip install --require-hashes -r requirements-build.txt \
    && /opt/fencepost/bin/pip install --require-hashes -r requirements-image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /src/dist . \
    && /opt/fencepost/bin/pip install --no-deps --no-index /src/dist/*.whl

FROM build AS build-stop-sync
COPY examples/stop_sync/requirements-image.txt ./requirements-stop-sync.txt
RUN /opt/fencepost/bin/pip install --require-hashes -r requirements-stop-sync.txt


FROM python:${PYTHON} AS base
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin fencepost \
    && install --directory --owner fencepost /data
ENV PATH=/opt/fencepost/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER fencepost
VOLUME /data

FROM base AS fencepost
COPY --from=build /opt/fencepost /opt/fencepost
# Loopback only, until FENCEPOST_HOST=0.0.0.0 and FENCEPOST_AUTH_TOKEN_FILE are set: see docs/service.md.
EXPOSE 8787
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8787/readyz', timeout=3)"]
CMD ["fencepost", "serve", "app:scheduler", "--log-format", "json"]

FROM base AS stop-sync
COPY --from=build-stop-sync /opt/fencepost /opt/fencepost
COPY examples/stop_sync/stop_sync ./stop_sync
ENV STOP_SYNC_DATA_DIR=/data
HEALTHCHECK --interval=3s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-m", "stop_sync.health"]
CMD ["python", "-m", "stop_sync.service"]
