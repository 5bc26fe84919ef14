// Package request parses what an HTTP request asks of the API, and carries this
// and the user in the request's context for authorization, metrics and
// handlers.
package request
