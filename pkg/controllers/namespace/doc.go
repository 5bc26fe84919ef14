// Package namespace deletes the content of namespaces that are being deleted, pods first, and
// then finalizes the namespaces. While content is left, the conditions of the namespace report
// what is left and why.
package namespace
