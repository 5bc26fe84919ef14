// Package encryption keeps values encrypted in the store, in upstream's form:
// what a kube-apiserver has written with the same EncryptionConfiguration can
// be read here, and the other way round.
//
// A value on disk begins with the name of its provider and key
// (k8s:enc:aesgcm:v1:key1:). The providers that a configuration lists for a
// resource are tried in their order; the first one writes. A value that
// another one has read is stale: it is written anew at the next write of its
// object, also by one that changes nothing.
//
// Store is the layer between the apiserver and a storage.Store: everything
// above it, the watch cache too, sees plain values.
package encryption
