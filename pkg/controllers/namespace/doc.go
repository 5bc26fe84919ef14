// Package namespace empties namespaces that are being deleted, pods first, and
// then lets them go. While something is left, the namespace's conditions say
// what and why.
package namespace
