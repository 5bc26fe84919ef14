// Package definition validates CustomResourceDefinitions. The rules of structural
// schemas and the CEL compiler are those of apiextensions-apiserver; this package has
// the rest, with upstream's field paths and messages.
package definition
