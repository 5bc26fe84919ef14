// Package request says what an HTTP request asks the API for, and who asks:
// the facts that every later step (authorization, metrics, the endpoints)
// reads from the request's context.
package request
