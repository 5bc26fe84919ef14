// Package etcd implements storage.Store with etcd: a remote cluster (Open), or a
// member inside this process that has its own data directory and no listeners
// (Embed).
package etcd
