# The CPU image: one command and the bundled model.
#
#   docker build -t cellm .
#   docker run --rm -it cellm chat
#   docker run --rm -p 8080:8080 cellm serve --host 0.0.0.0
#   docker run --rm -v "$PWD/models:/models:ro" cellm infer --model mine.cellm --prompt "Hello"
#
# BASE and RUN_BASE may name any image with Debian 12 packages; tests/packaging/image_test.sh
# builds on a base of its own, without a registry and without a container engine.
ARG BASE=debian:12
ARG RUN_BASE=debian:12-slim

FROM ${BASE} AS build
# The packages first: their layer is kept until the list changes.
COPY scripts/setup.sh /src/scripts/setup.sh
RUN /src/scripts/setup.sh build
COPY . /src
WORKDIR /src
RUN cmake --preset release -DCELLM_BUILD_TESTS=OFF && \
    cmake --build --preset release && \
    cmake --install build/release --prefix /opt/cellm --strip && \
    rm -rf /opt/cellm/include /opt/cellm/lib

FROM ${RUN_BASE}
RUN apt-get -q update && \
    apt-get -y -q --no-install-recommends install libedit2 libpcre2-8-0 libstdc++6 \
        libmpg123-0 libsndfile1 libspeexdsp1 libwebp7 && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build /opt/cellm /usr/local
# Nobody in particular: the program reads models and writes to its terminal.
USER 65534:65534
WORKDIR /models
# Where `serve --host 0.0.0.0` listens.
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/cellm"]
CMD ["--help"]
