// Package webhook asks services outside of the cluster: whose a token is,
// whether a request is allowed, to keep a record. They are not trusted to be
// quick, brief or there: what asking costs is bounded in time, in bytes and in
// questions under way.
package webhook
