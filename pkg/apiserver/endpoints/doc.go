// Package endpoints handles the requests for API resources, with one file for each
// verb. A read goes through cache, selector and cached encodings; a write goes
// through decoding, defaulting, admission, preparation, validation and the store.
// Package registry defines what differs between the kinds.
package endpoints
