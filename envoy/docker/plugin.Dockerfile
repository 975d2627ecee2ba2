# The plugin as an image, for Istio's WasmPlugin and Envoy Gateway's EnvoyExtensionPolicy. The context is the
# repository's root:
#
#   docker build -f envoy/docker/plugin.Dockerfile -t REGISTRY/warmroute/plugin:VERSION .

FROM rust:1.95.0-slim-trixie AS build
# As rust-toolchain.toml says, without the tools for developers that it would fetch.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN rustup target add wasm32-wasip1
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --package warmroute --lib --target wasm32-wasip1 --profile wasm \
 && cp target/wasm32-wasip1/wasm/warmroute.wasm /

# Both read an image of one layer with this one file in it.
FROM scratch
COPY --from=build /warmroute.wasm /plugin.wasm
