package request

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Info is what the method and the path of a request ask for.
type Info struct {
	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection for a resource, else the HTTP method in lower case.
	Verb string
	Path string

	// IsResource says that the path names an API resource; without it the
	// fields below are empty.
	IsResource  bool
	Group       string
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	Name        string // a list or watch of one object has its name, too
	Rest        string // what follows the subresource, with its leading slash

	// FieldSelector and LabelSelector are those of a request for many objects,
	// as they were sent.
	FieldSelector string
	LabelSelector string
}

// GVR is the group, version and resource asked for.
func (i *Info) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: i.Group, Version: i.Version, Resource: i.Resource}
}

// ReadOnly says that the request cannot change anything.
func (i *Info) ReadOnly() bool {
	switch i.Verb {
	case "get", "list", "watch", "head", "options":
		return true
	}
	return false
}

// SnapshotPath is the page that streams the store's snapshot.
const SnapshotPath = "/snapshot"

// LongRunning says that the request lasts as long as its client wants: it has
// no deadline and takes no place among the requests in flight.
func (i *Info) LongRunning() bool {
	if i.Verb == "watch" || !i.IsResource && i.Path == SnapshotPath {
		return true
	}
	switch i.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// Scope is the metrics' word for how much the request looks at.
func (i *Info) Scope() string {
	switch {
	case !i.IsResource:
		return ""
	case i.Name != "" || i.Verb == "create":
		return "resource"
	case i.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

// Parse reads method and path. The query counts only where it makes a watch of
// a list or names a single object.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
func Parse(r *http.Request) Info {
	info := Info{Verb: strings.ToLower(r.Method), Path: r.URL.Path}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	segments := len(parts)
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		info.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		info.Group, info.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return info
	}
	info.IsResource = true
	info.Verb = resourceVerb(r.Method)

	watchPath := false
	if parts[0] == "watch" && len(parts) > 1 {
		watchPath, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		info.Namespace = parts[1]
		if len(parts) > 2 && !isNamespaceSubresource(info.Group, parts[2]) {
			parts = parts[2:]
		}
	}
	info.Resource = parts[0]
	if len(parts) > 1 {
		info.Name = parts[1]
	}
	if len(parts) > 2 {
		info.Subresource = parts[2]
	}
	if len(parts) > 3 {
		info.Rest = after(r.URL.Path, segments-len(parts)+3)
	}
	switch {
	case watchPath && info.Verb == "get":
		info.Verb = "watch"
	case info.Name == "":
		info.Verb = collectionVerb(info.Verb, r.URL)
		info.readSelectors(r.URL)
	}
	return info
}

// after is the path behind its first n segments, trailing slash and all.
func after(path string, n int) string {
	path = strings.TrimLeft(path, "/")
	for range n {
		i := strings.IndexByte(path, '/')
		if i < 0 {
			return ""
		}
		path = path[i+1:]
	}
	return "/" + path
}

func isNamespaceSubresource(group, part string) bool {
	return group == "" && (part == "status" || part == "finalize")
}

func resourceVerb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return strings.ToLower(method)
}

func collectionVerb(verb string, u *url.URL) string {
	switch verb {
	case "get":
		if u.RawQuery != "" && Flag(u.Query(), "watch") {
			return "watch"
		}
		return "list"
	case "delete":
		return "deletecollection"
	}
	return verb
}

// readSelectors notes which objects of many are asked for, and the one name
// that the field selector allows, if it does.
func (i *Info) readSelectors(u *url.URL) {
	if i.Verb != "list" && i.Verb != "watch" && i.Verb != "deletecollection" || !strings.Contains(u.RawQuery, "Selector=") {
		return
	}
	q := u.Query()
	i.FieldSelector, i.LabelSelector = q.Get("fieldSelector"), q.Get("labelSelector")
	if sel, err := fields.ParseSelector(i.FieldSelector); err == nil {
		i.Name, _ = sel.RequiresExactMatch("metadata.name")
	}
}

// Flag reads a boolean of a query: present is true, unless it says 0 or false.
func Flag(q url.Values, key string) bool {
	v, ok := q[key]
	if !ok {
		return false
	}
	return len(v) == 0 || v[0] != "0" && !strings.EqualFold(v[0], "false")
}
