// Package scheme says which kinds exist and how they cross the wire: the
// table of kinds the API serves, and the JSON, YAML and protobuf codecs. It is
// the lowest floor: it knows no server and no client.
package scheme
