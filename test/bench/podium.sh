#!/usr/bin/env bash
# Runs Podium's kube-apiserver as a side of the comparison: on the etcd that is
# given, with authentication by client certificate. Without the controllers no
# namespace has its default service account, so that admission plugin is off.
#
#   podium.sh BIN IDENTITIES ETCD PORT DIR
set -euo pipefail
bin=$1 identities=$2 etcd=$3 port=$4 dir=$5
"$identities" -dir "$dir"
exec "$bin/kube-apiserver" --etcd-servers="$etcd" --bind-address=127.0.0.1 --advertise-address=192.0.2.10 --disable-admission-plugins=ServiceAccount --secure-port="$port" \
  --client-ca-file="$dir/ca.crt" --tls-cert-file="$dir/apiserver.crt" --tls-private-key-file="$dir/apiserver.key" \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-signing-key-file="$dir/sa.key" --service-account-key-file="$dir/sa.pub"
