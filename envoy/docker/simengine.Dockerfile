# warmroute-simengine. The context is the repository's root:
#
#   docker build -f envoy/docker/simengine.Dockerfile -t warmroute-simengine .

FROM rust:1.95.0-slim-trixie AS build
# As rust-toolchain.toml says, without the tools for developers that it would fetch.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --package warmroute-simengine \
 && cp target/release/warmroute-simengine /

FROM debian:trixie-slim
COPY --from=build /warmroute-simengine /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["warmroute-simengine"]
