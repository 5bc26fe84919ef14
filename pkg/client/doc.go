// Package client speaks to kube-apiserver: typed, generic REST and watches,
// protobuf on the wire. A Client is safe for concurrent use and keeps no state
// but its connections and the server that answered last; it puts no limit on
// the rate of requests (the server's flow control does).
package client
