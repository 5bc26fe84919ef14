// Package rest is how the CLI sees the API: every kind the server serves, found
// by the words people use for it, and its objects as they are on the wire,
// whether the CLI knows their type or not.
package rest
