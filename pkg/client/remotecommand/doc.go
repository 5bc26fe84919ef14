// Package remotecommand is a client for exec, attach and port-forward.
package remotecommand
