// Package scheme defines the kinds that the API serves, and their JSON, YAML and
// protobuf encodings. Servers and clients use it; it depends on neither.
package scheme
