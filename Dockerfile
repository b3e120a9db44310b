# The agent's image. Nothing in it is fetched without a hash but the base image itself.
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/build && python -m venv /opt/nodetopo
# The development lock pins hatchling, which builds the wheel; it stays in this stage.
COPY requirements.lock requirements-runtime.lock ./
RUN /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
 && /opt/nodetopo/bin/pip install --no-cache-dir --require-hashes -r requirements-runtime.lock
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY agent agent
# The file system is read-only at run time: bytecode is made here, and never checked again.
RUN /opt/build/bin/python -m hatchling build -t wheel \
 && /opt/nodetopo/bin/pip install --no-cache-dir --no-deps --no-index dist/*.whl \
 && /opt/nodetopo/bin/pip uninstall --yes pip \
 && /opt/build/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/nodetopo/lib

FROM python:3.12-slim
COPY --from=build /opt/nodetopo /opt/nodetopo
ENV PATH=/opt/nodetopo/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# The kubelet's directories are root's own with mode 0750; DaemonSet drops all capabilities.
USER 0
# A SIGTERM that is blocked waits until there is a handler; one that the first process of a
# container has neither blocked nor a handler for is lost.
ENTRYPOINT ["env", "--block-signal=TERM", "nodetopo"]
CMD ["run"]
