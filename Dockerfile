# docker build --target proxy -t ringside-proxy:0.1.0 .
# docker build --target sharder -t ringside-sharder:0.1.0 .
# docker build --target cli --output bin .        the `ringside` command, as a file
# Each takes `--platform linux/amd64` or `linux/arm64`: the compiler runs on the builder's own architecture.
ARG TARGETARCH
ARG BUILDPLATFORM

FROM --platform=$BUILDPLATFORM rust:1.95-bookworm AS for-amd64
ENV TRIPLE=x86_64-linux-gnu CARGO_BUILD_TARGET=x86_64-unknown-linux-gnu CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc

FROM --platform=$BUILDPLATFORM rust:1.95-bookworm AS for-arm64
ENV TRIPLE=aarch64-linux-gnu CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

FROM for-$TARGETARCH AS build
WORKDIR /src
RUN rustup target add "$CARGO_BUILD_TARGET" && \
    { command -v "$TRIPLE-gcc" || { apt-get update && apt-get install --yes --no-install-recommends "gcc-$TRIPLE" "libc6-dev-$(echo "$TRIPLE" | sed 's/aarch64.*/arm64/; s/x86_64.*/amd64/')-cross"; }; }
COPY . .
# Static binaries: the images hold nothing else. With an explicit target the flag stays away from build scripts.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --profile dist --locked -p ringside-proxy -p ringside-sharder -p ringside-cli && \
    mkdir /out && cd "target/$CARGO_BUILD_TARGET/dist" && cp ringside-proxy ringside-sharder ringside /out/

FROM scratch AS image
LABEL org.opencontainers.image.version=0.1.0 org.opencontainers.image.licenses=Apache-2.0
USER 65532:65532

FROM image AS cli
LABEL org.opencontainers.image.title=ringside
COPY --from=build /out/ringside /
ENTRYPOINT ["/ringside"]

FROM image AS sharder
LABEL org.opencontainers.image.title=ringside-sharder
COPY --from=build /out/ringside-sharder /
ENTRYPOINT ["/ringside-sharder"]

FROM image AS proxy
LABEL org.opencontainers.image.title=ringside-proxy
COPY --from=build /out/ringside-proxy /
ENTRYPOINT ["/ringside-proxy"]
