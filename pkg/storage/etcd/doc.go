// Package etcd is storage.Store over etcd: a remote cluster (Open), or a member
// that runs inside this process on a data directory of its own and that nobody
// else can reach (Embed).
package etcd
