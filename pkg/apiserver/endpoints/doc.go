// Package endpoints answers the requests for API resources: one file a verb.
// The path of a read is cache, selector, cached encodings; that of a write is
// decode, default, admit, prepare, validate, store. What is special about a
// kind comes from package registry.
package endpoints
