// Package encryption encrypts values in the store, in the format of Kubernetes:
// with the same EncryptionConfiguration, it reads what a kube-apiserver has
// written, and vice versa.
//
// A stored value begins with the name of its provider and key
// (k8s:enc:aesgcm:v1:key1:). The first provider that the configuration lists for a
// resource writes; reads try all of them in order. A value that another provider or
// key has written is stale: the next write of its object encrypts it again, even if
// that write changes nothing else.
//
// Store is the layer between the API server and a storage.Store: everything above
// it, including the watch cache, uses decrypted values.
package encryption
