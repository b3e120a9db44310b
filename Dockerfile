# The agent's image, for amd64 and arm64. What is fetched is pinned: the base by the digest of its
# index of all architectures, each Python package by the hashes of its wheels. Two builds of one
# commit with the same SOURCE_DATE_EPOCH make the same files.

# The tag is for people, the digest decides; this prints both for a newer one:
#   docker buildx imagetools inspect python:3.13-slim-trixie
ARG BASE=docker.io/library/python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements-build.lock requirements-runtime.lock ./
# Wheels alone: nothing is compiled, so that no stage needs a compiler.
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/build \
 && python3 -m venv --without-pip /opt/nodetopo \
 && /opt/build/bin/pip install --require-hashes --only-binary=:all: -r requirements-build.lock \
 && /opt/build/bin/pip --python /opt/nodetopo/bin/python install --no-compile \
      --require-hashes --only-binary=:all: -r requirements-runtime.lock
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY agent agent
# Seconds since 1970, for all files; of a release the time of its commit.
ARG SOURCE_DATE_EPOCH=1577836800
RUN /opt/build/bin/python -m hatchling build -t wheel \
 && /opt/build/bin/pip --python /opt/nodetopo/bin/python install --no-compile \
      --no-deps --no-index dist/*.whl
# Three quarters of all bytes are clients that the agent has no use for, as it asks the API server by
# path. Only our own program stays, and does not listen to PYTHONPATH. The file system is read-only
# at run time: bytecode is made here, and never checked again. It names lines, not columns: less memory.
WORKDIR /opt/nodetopo
RUN rm -r lib/python3*/site-packages/kubernetes/aio lib/python3*/site-packages/kubernetes/client/api \
      lib/python3*/site-packages/kubernetes/client/models/[!_]*.py \
 && find bin -mindepth 1 ! -name "python*" ! -name nodetopo -delete \
 && sed -i "1s|.*|#!/opt/nodetopo/bin/python -IBuXno_debug_ranges|" bin/nodetopo \
 && python3 -Xno_debug_ranges -m compileall -q -f --invalidation-mode unchecked-hash lib \
 && find . -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

FROM ${BASE}
# Neither the base's pip nor the one that ensurepip would install.
RUN stdlib="$(python3 -Ic 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
 && rm -rf "$stdlib/ensurepip" "$stdlib"/site-packages/pip "$stdlib"/site-packages/pip-* \
      /usr/local/bin/pip*
COPY --from=build /opt/nodetopo /opt/nodetopo
ENV PATH=/opt/nodetopo/bin:$PATH
ARG BASE
LABEL org.opencontainers.image.title="nodetopo" \
      org.opencontainers.image.description="Reads a GPU node's topology, labels it, and places GPUs exactly" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="$BASE"
# The kubelet's directories are root's own with mode 0750; the DaemonSet drops all capabilities.
# hadolint ignore=DL3002
USER 0
# A SIGTERM that is blocked waits until there is a handler; one that the first process of a
# container has neither blocked nor a handler for is lost. Distroless images lack env(1) for that.
# Python is isolated (-I): no variable and no working directory adds to its modules. It writes no
# bytecode (-B) and no line late (-u).
ENTRYPOINT ["env", "--block-signal=TERM", \
    "/opt/nodetopo/bin/python", "-IBuXno_debug_ranges", "-m", "nodetopo"]
CMD ["run"]
