# Three images, none with a compiler, all for a user that is not root and a root file system that is read only:
#   --target sidecar      the proxy beside each engine
#   --target operator     what serves SageSchedPolicies
#   --target engine-sim   an engine without a GPU
ARG BASE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE} AS source
WORKDIR /src
COPY requirements/build.txt requirements/build.txt
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/sagesched \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY store store
COPY proto proto
COPY sidecar sidecar
COPY operator operator
COPY sim sim
COPY cli cli
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation -w /wheels .
ENV INSTALL="/opt/build/bin/pip --python /opt/sagesched/bin/python install --no-cache-dir --no-compile"

FROM source AS sidecar-build
COPY requirements/sidecar.txt .
RUN $INSTALL --require-hashes -r sidecar.txt && $INSTALL --no-deps /wheels/*.whl

FROM source AS operator-build
COPY requirements/operator.txt .
RUN $INSTALL --require-hashes -r operator.txt && $INSTALL --no-deps /wheels/*.whl

FROM source AS engine-sim-build
COPY requirements/sim.txt .
RUN $INSTALL --require-hashes -r sim.txt && $INSTALL --no-deps /wheels/*.whl

FROM ${BASE} AS run
ENV PATH=/opt/sagesched/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001

FROM run AS sidecar
COPY --from=sidecar-build /opt/sagesched /opt/sagesched
ENTRYPOINT ["python3", "-m", "sagesched_sidecar"]

FROM run AS operator
COPY --from=operator-build /opt/sagesched /opt/sagesched
ENTRYPOINT ["python3", "-m", "sagesched_operator"]

FROM run AS engine-sim
COPY --from=engine-sim-build /opt/sagesched /opt/sagesched
ENTRYPOINT ["python3", "-m", "sagesched_sim"]
