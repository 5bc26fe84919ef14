// Package authn says who a request comes from: by client certificate, by a
// token (of a service account, of a machine that joins, of an OpenID Connect
// provider, of a webhook), by the word of a front proxy, or nobody in
// particular. It also signs the service account tokens it accepts.
package authn
