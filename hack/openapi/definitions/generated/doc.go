// Package generated is what openapi-gen writes; it is not committed.
package generated
