# heed's programs on the CPU, from the package that ./dev package makes:
#   docker build -t heed . && docker run --rm -v "$PWD:/data" heed heed-classify train --out runs/first
FROM debian:12-slim AS build
COPY . /heed
WORKDIR /heed
RUN ./dev package

FROM debian:12-slim
COPY --from=build /heed/build/packages/*.deb /tmp/
RUN apt-get update \
 && apt-get install -y --no-install-recommends /tmp/*.deb \
 && rm -rf /var/lib/apt/lists/* /tmp/*.deb
WORKDIR /data
CMD ["heed", "--help"]
