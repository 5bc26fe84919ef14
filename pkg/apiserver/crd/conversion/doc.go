// Package conversion converts custom resources between their versions by the webhook of
// their definition. The texts of errors are upstream's.
package conversion
