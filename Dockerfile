# The one image, for every component: `embereye SUBCOMMAND`. Build it with e2e/cluster/build-image, which makes the
# context: packages/ (the wheels of requirements.txt), own/ (this project's wheel) and pip/ (pip's wheel).
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
# In two layers, so that a change of the project alone installs the project alone.
COPY pip /wheels/pip
COPY packages /wheels/packages
RUN python3 -m venv --without-pip /opt/embereye \
 && /opt/embereye/bin/python /wheels/pip/*.whl/pip install --no-cache-dir --no-index --no-deps --no-compile /wheels/packages/*.whl
COPY own /wheels/own
RUN /opt/embereye/bin/python /wheels/pip/*.whl/pip install --no-cache-dir --no-index --no-deps --no-compile /wheels/own/*.whl \
 && /opt/embereye/bin/python /wheels/pip/*.whl/pip check \
 && /opt/embereye/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/embereye/lib

FROM ${BASE}
# A name for the user: kopf signs with it. The root file system may be read-only; /tmp need not exist as a volume.
RUN echo 'embereye:x:65532:65532:EmberEye:/tmp:/usr/sbin/nologin' >>/etc/passwd && echo 'embereye:x:65532:' >>/etc/group
COPY --from=build /opt/embereye /opt/embereye
ENV PATH=/opt/embereye/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["embereye"]
