# Everything a person or CI does with this repository. `make help` lists it.

BINARIES := kube-apiserver kube-scheduler kube-controller-manager cloud-controller-manager kubelet kube-proxy cluster-dns metrics-server etcd etcdutl podium
# Which build this is: versions show it, and upgrades compare it.
BUILD = $(shell git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo .$$(git rev-list --count HEAD).$$(git rev-parse --short HEAD))
COMMIT = $(shell git rev-parse -q --verify HEAD 2>/dev/null)
DATE = $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
TREE = $(shell git status --porcelain 2>/dev/null | grep -q . && echo dirty || echo clean)
IN_VERSION = -X podium/pkg/version
# grpcnotrace leaves out the pages of traces, whose templates call methods by name: with
# them, the linker keeps all methods.
GOFLAGS_BUILD = -trimpath -tags grpcnotrace -ldflags "-s -w $(IN_VERSION).build=$(BUILD) $(IN_VERSION).commit=$(COMMIT) $(IN_VERSION).date=$(DATE) $(IN_VERSION).tree=$(TREE)"
RUN      ?= _run

export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what is missing from Debian's packages
	@hack/deps

.PHONY: build
build: ## build the binaries into bin/
	@mkdir -p bin
	go build $(GOFLAGS_BUILD) -o bin/ $(addprefix ./cmd/,$(BINARIES))

.PHONY: images
images: deps ## build the images of clusters, tests and examples into _images/
	go run ./hack/images -out _images

.PHONY: node-image
node-image: build images ## build the image of node containers (Docker, no registry)
	@BINARIES="$(BINARIES)" hack/node-image

.PHONY: install
install: build images ## install below DESTDIR, PREFIX (/usr/local): for machines with systemd
	@BINARIES="$(BINARIES)" hack/install

.PHONY: deb
deb: build images ## build a Debian package into _deb/
	@BINARIES="$(BINARIES)" hack/deb

.PHONY: up
up: deps ## bring up a one-node cluster and an app on it
	@hack/up $(RUN)

.PHONY: down
down: ## end the cluster and leave nothing behind
	@hack/down $(RUN)

.PHONY: check
check: ## lint and test what differs from main; the import laws (the inner loop)
	@hack/check

.PHONY: test
test: ## all tests: unit, contract, integration, end to end
	@hack/test

.PHONY: e2e
e2e: deps ## only the end-to-end tests, on a real containerd
	@hack/test e2e

.PHONY: soak
soak: deps ## fuzzing, simulation, crashes, fail-over, kills, a database, hundreds of pods, abuse and a policy engine for long (SOAK, 10m a stage)
	@hack/soak

.PHONY: conformance
conformance: deps ## the rows of upstream's conformance suite, counted by area
	@hack/test conformance

.PHONY: e2e-vm
e2e-vm: deb ## the operator's page on three virtual machines, remote volumes on two (QEMU; 12 to 45 minutes each without KVM)
	@hack/e2e-vm

.PHONY: bench
bench: deps ## measure: beside the peer, beside the raw runtime, memory
	@hack/bench

.PHONY: bench-cluster
bench-cluster: node-image ## measure clusters of node containers: create, delete, memory
	@hack/bench-cluster

.PHONY: failover
failover: node-image ## lose control planes 20 times (ROUNDS), and measure what clients notice
	go test -count=1 -timeout 20m -v ./test/e2e/ha -rounds $${ROUNDS:-20}

.PHONY: cis
cis: ## the checks of the CIS benchmark, on what `make up` has brought up
	@go run ./hack/cis -dir $(RUN)

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@hack/test lint

.PHONY: generate
generate: ## make the published API documents again
	go run ./hack/openapi
