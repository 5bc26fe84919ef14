package apiserver

import (
	"path"
	"strings"

	"podium/pkg/apiserver/request"
)

// running is what else a request must be allowed that runs something in a
// container, or speaks to its ports, by a GET, as WebSocket has it: to run is to
// create, and who may only look must not. It is nil for all others. The
// kubelet's own paths count, too: to the kubelet it is the server that asks.
func running(info *request.Info) *request.Info {
	if info.Verb != "get" || info.Group != "" || !runs(info) {
		return nil
	}
	create := *info
	create.Verb = "create"
	return &create
}

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
