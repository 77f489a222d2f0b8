# Images from source. A release has the same image, assembled without an engine from the
# binaries of its archives (test/release).
# The base is pinned by digest: a tag may mean another image tomorrow. Renew both together.
FROM golang:1.26.5@sha256:3aff6657219a4d9c14e27fb1d8976c49c29fddb70ba835014f477e1c70636647 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TAGS=nodemo,nomsgpack,grpcnotrace
RUN CGO_ENABLED=0 go build -tags "$TAGS" -trimpath -ldflags="-s -w" -o /out/ ./cmd/aepb-gateway ./cmd/aepbctl

# What deploy/compose runs besides the gateway: its set-up and the demo agents.
FROM build AS build-cluster
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/ ./test/cluster

FROM scratch AS cluster
COPY --from=build-cluster /out/cluster /cluster
USER 65532:65532
ENTRYPOINT ["/cluster"]

# A static binary in an empty image, run without privileges.
FROM scratch AS gateway
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/aepb-gateway /out/aepbctl /
USER 65532:65532
EXPOSE 8443 9443 9464
# Asks http://127.0.0.1:9464, so the configuration needs listen: {metrics: ":9464"}.
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD ["/aepbctl", "healthz"]
ENTRYPOINT ["/aepb-gateway"]
CMD ["serve", "--config", "/etc/aepb/gateway.yaml"]
