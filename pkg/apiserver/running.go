package apiserver

import (
	"path"
	"strings"

	"podium/pkg/apiserver/request"
)

// running returns the additional attributes that must be authorized for a GET
// that runs a process in a container or opens its ports, as WebSocket clients
// send: the same request with the verb create, so that read access does not
// suffice. It includes the kubelet's own paths through nodes/proxy, where the
// kubelet sees only the server's identity. It returns nil for all other
// requests.
func running(info *request.Info) *request.Info {
	if info.Verb != "get" || info.Group != "" || !runs(info) {
		return nil
	}
	create := *info
	create.Verb = "create"
	return &create
}

// runs reports whether a request runs a process in a container or connects to
// its ports.
func runs(info *request.Info) bool {
	switch info.Resource + "/" + info.Subresource {
	case "pods/exec", "pods/attach", "pods/portforward":
		return true
	case "nodes/proxy":
		switch first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+info.Rest), "/"), "/"); first {
		case "exec", "attach", "portForward":
			return true
		}
	}
	return false
}
