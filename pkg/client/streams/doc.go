// Package streams is the wire of exec, attach and port-forward: WebSocket
// frames and the channels in them, SPDY streams, and the tunnels and the
// translation between the two. The apiserver and the kubelet pass such
// connections on with it; package remotecommand speaks it as a client.
package streams
