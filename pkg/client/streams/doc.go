// Package streams implements the wire protocols of exec, attach and port-forward:
// WebSocket frames and the channels in them, SPDY streams, tunnels, and the translation
// between WebSocket and SPDY. The API server and the kubelet proxy such connections with
// it; package remotecommand is the client.
package streams
