// Package rest is the CLI's access to the API: it finds the kinds that the
// server serves by the words that users type, and handles objects in their wire
// form, whether or not the CLI has a Go type for them.
package rest
