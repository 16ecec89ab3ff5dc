# The image holds the static binary, the public certificate authorities, and an empty data_dir that it may write to.
#
#   docker build -t outtail .
#   docker run -v $PWD/outtail.yaml:/etc/outtail/outtail.yaml:ro -v outtail-data:/data outtail
#
# The configuration's data_dir should be /data: losing it means losing the position.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w ${VERSION:+-X main.version=$VERSION}" -o /out/outtail ./cmd/outtail \
 && mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/outtail /outtail
COPY --from=build --chown=65532:65532 /out/data /data
# A number, so that an orchestrator can prove that it is not root.
USER 65532:65532
VOLUME /data
# /metrics, /healthz and /readyz, where admin.listen says 0.0.0.0:8095
EXPOSE 8095
STOPSIGNAL SIGTERM
ENTRYPOINT ["/outtail"]
CMD ["run", "-c", "/etc/outtail/outtail.yaml"]
