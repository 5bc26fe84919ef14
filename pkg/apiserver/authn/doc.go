// Package authn authenticates requests: by client certificate, by token (of a
// service account, a joining machine, an OpenID Connect provider or a webhook),
// by the headers of a front proxy, or as anonymous. It also signs service
// account tokens.
package authn
