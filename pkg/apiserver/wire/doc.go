// Package wire is how answers reach the client: which form it accepts, an
// object or an error in that form, compressed when large and asked for.
package wire
