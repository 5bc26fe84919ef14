// Package generated contains the output of openapi-gen, which is not committed.
package generated
