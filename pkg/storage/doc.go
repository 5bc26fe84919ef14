// Package storage is the contract between the apiserver and what keeps its
// objects: keys, values and revisions. Two packages fulfil it, etcd and memory,
// with the same observable semantics; storagetest proves it on both.
package storage
