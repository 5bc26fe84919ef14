// Package storage defines the contract between the API server and the store of its
// objects: keys, values and revisions. Two packages implement it with the same
// observable semantics, etcd and memory; package storagetest tests both.
package storage
