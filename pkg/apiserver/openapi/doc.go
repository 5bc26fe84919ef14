// Package openapi serves the published OpenAPI documents, version 2 and 3, as
// JSON and as protobuf.
package openapi
