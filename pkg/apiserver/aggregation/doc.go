// Package aggregation makes the APIs of other servers part of this one, as
// kube-aggregator does: an APIService names the Service that serves a group version.
// Requests for it pass this server's authentication, audit and authorization and are
// then proxied, with the user in headers that the front-proxy certificate vouches for.
// The package checks whether the Services are available, merges what they serve into
// discovery and OpenAPI, and keeps an APIService for each group version that this
// server serves itself.
package aggregation
