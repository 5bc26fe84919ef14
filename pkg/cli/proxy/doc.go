// Package proxy serves the API, and files beside it, to programs that have no
// credentials: browsers, curl. What they may request is filtered.
package proxy
