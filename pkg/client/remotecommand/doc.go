// Package remotecommand is the client's end of exec, attach and port-forward.
package remotecommand
