// Package authn says who a request comes from: by client certificate, by
// service account token, or nobody in particular. It also signs the tokens it
// accepts.
package authn
