// Package wire writes responses: it negotiates the media type, and writes objects
// and errors in it, compressed if they are large and the client accepts gzip. It
// also reads request bodies.
package wire
