# Serve a classifier; --build-arg TORCH=... takes another build of PyTorch, for example one for CPUs only:
# docker build -t handful . && docker run -p 127.0.0.1:8080:8080 -v $PWD/models:/models handful birds.handful
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN pip install --no-cache-dir build==1.3.0 && python -m build --wheel

FROM python:3.12-slim
ARG TORCH=torch==2.13.0
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ${TORCH}
COPY --from=build /source/dist/*.whl /tmp/
RUN pip install --no-cache-dir "$(ls /tmp/*.whl)[images,serve]" && rm /tmp/*.whl \
    && useradd --create-home --uid 10001 handful
USER 10001
WORKDIR /models
EXPOSE 8080
ENTRYPOINT ["handful", "serve", "--host", "0.0.0.0", "--port", "8080"]
