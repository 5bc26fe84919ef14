// Package cbor serves clients that speak CBOR (RFC 8949) instead of JSON. It
// translates the bodies of requests and responses, item by item, so that the
// endpoints see JSON only: application/cbor for objects, application/cbor-seq for
// watches and application/apply-patch+cbor for server-side apply. Responses are
// translated while they are written and are not held in memory.
//
// The encoding is that of upstream: strings are byte strings, and a byte string with
// the tag 22 stands for its base64 form.
package cbor
