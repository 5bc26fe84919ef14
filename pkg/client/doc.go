// Package client is a typed, generic REST and watch client for kube-apiserver, with
// protobuf on the wire. A Client is safe for concurrent use and keeps no state except
// its connections and the server that answered last. It does not limit the rate of
// requests: the server's flow control does.
package client
