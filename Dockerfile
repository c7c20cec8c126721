# The one image, for every component: `embereye SUBCOMMAND`. Build it with e2e/cluster/build-image, which makes the
# context: packages/ (the wheels of requirements.txt, stripped), own/ (this project's wheel), pip/ (pip's wheel) and share_ffmpeg.py.
ARG BASE=python:3.11-slim

FROM ${BASE} AS packages
COPY pip packages share_ffmpeg.py /wheels/
# Compiled here, since the root file system may be read-only later, and not compared with the sources' times.
RUN python3 -m venv --without-pip /opt/packages \
 && pip="$(echo /wheels/pip-*.whl)" && mv "$pip" /pip.whl \
 && /opt/packages/bin/python /pip.whl/pip install --no-cache-dir --no-index --no-deps --no-compile /wheels/*.whl \
 && cd /opt/packages/lib/python3.*/site-packages \
 && rm -rf */tests */*/tests */*/*/tests numpy/f2py numpy/_core/include uvloop/*.c *.pyi */*.pyi */*.pyx */*.pxd */*/*.pyi pygments numpy/_core/_*_tests*.so numpy/_core/_simd*.so \
 && python3 /wheels/share_ffmpeg.py . \
 && echo /opt/embereye >embereye.pth \
 && /opt/packages/bin/python -m compileall -q --invalidation-mode unchecked-hash .

FROM packages AS own
COPY own /own
RUN /opt/packages/bin/python /pip.whl/pip install --no-cache-dir --no-index --no-deps --no-compile --target /opt/embereye /own/*.whl \
 && /opt/packages/bin/python /pip.whl/pip check \
 && /opt/packages/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/embereye

FROM ${BASE}
# A name for the user, which some clusters run under another number: kopf signs with it.
RUN echo 'embereye:x:65532:65532:EmberEye:/tmp:/usr/sbin/nologin' >>/etc/passwd && echo 'embereye:x:65532:' >>/etc/group \
 && install --directory --owner=65532 --group=65532 --mode=0700 /var/lib/embereye
# Two layers, so that a change of the project alone is small.
COPY --from=packages /opt/packages /opt/packages
COPY --from=own /opt/embereye /opt/embereye
ENV PATH=/opt/embereye/bin:/opt/packages/bin:$PATH HOME=/tmp USER=embereye PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["embereye"]
