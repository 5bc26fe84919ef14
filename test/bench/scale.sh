#!/usr/bin/env bash
# Measures a whole control plane: a local cluster (real processes, the embedded
# etcd), hollow nodes as one process beside it, and a Deployment whose pods they
# report as running. Prints one line of JSON a phase. As root, after `make build
# images`; it leaves nothing behind.
#
#   scale.sh [-n NODES] [-p PODS] [-g OBJECTS] [-c DIR]
#
#   -g   create so many objects of one owner, delete it, and wait for the garbage collector
#   -c   write CPU profiles of the control plane's daemons there, of 15 s of the Deployment
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
nodes=1000 pods=10000 dependents=0 profiles= port=${PORT:-16443} idle=${IDLE:-30}
while getopts n:p:g:c: f; do
  case $f in
    n) nodes=$OPTARG ;; p) pods=$OPTARG ;; g) dependents=$OPTARG ;; c) profiles=$OPTARG ;;
    *) exit 2 ;;
  esac
done

work=$(mktemp -d)
export KUBECONFIG=$work/cluster/kubeconfig
trap '"$root/bin/podium" cluster delete --provider local --dir "$work/cluster" >&2 || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
(cd "$here" && nice go build -trimpath -o "$work/hollow" ./hollow)
flags=(--extra-config kube-controller-manager.node-cidr-mask-size=29) # room for 8,192 nodes; few pods are real
for daemon in kube-apiserver kube-controller-manager kube-scheduler; do flags+=(--extra-config "$daemon.profiling=true"); done
"$root/bin/podium" cluster create --provider local --dir "$work/cluster" --images "$root/_images" --port "$port" "${flags[@]}" >&2
profile() { # DAEMON PORT
  "$root/bin/podium" get --raw '/debug/pprof/profile?seconds=15' --server "https://127.0.0.1:$2" --insecure-skip-tls-verify >"$profiles/$1.pprof"
}
if [ -n "$profiles" ]; then
  mkdir -p "$profiles"
  for daemon in "kube-apiserver $port" 'kube-controller-manager 10257' 'kube-scheduler 10259'; do
    # shellcheck disable=SC2086 # two words
    (sleep "$((12 + idle))" && profile $daemon) &
  done
fi
"$work/hollow" -kubeconfig "$KUBECONFIG" -dir "$work/cluster" -nodes "$nodes" -pods "$pods" -dependents "$dependents" -idle "${idle}s"
