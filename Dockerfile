# feddag in a container: `docker build -t feddag .`, then `docker run --rm feddag` runs the demo.
# With your own data: docker run --rm -v "$PWD":/work feddag run FOLDER
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# The small build of torch for processors, and the versions that the tests ran with.
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt .

FROM python:3.11-slim
COPY --from=build /venv /venv
RUN useradd --create-home feddag && mkdir /work && chown feddag /work
USER feddag
WORKDIR /work
ENV PATH=/venv/bin:$PATH
ENTRYPOINT ["feddag"]
CMD ["run", "demo"]
