// Package openapi serves the OpenAPI documents, v2 and v3, as JSON and as protobuf.
package openapi
