package request

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Info is what the method and the path of a request ask for.
type Info struct {
	// Verb is get, list, watch, create, update, patch, delete,
	// deletecollection or options for a resource, else the HTTP method in lower
	// case. It is empty if the server does not know the method, or does not
	// allow it on such a path: such a request is answered with 405.
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
	Name        string // that of the path, else the one that the field selector of a list or watch requires
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
// a list or names a single object. A handler must serve what Info says and
// nothing else: that is what the authorizer has seen.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
func Parse(r *http.Request) Info {
	info := Info{Verb: methodVerb(r.Method), Path: r.URL.Path}
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
	case watchPath:
		info.Verb = "" // a path that is only for watching
	case info.Name == "":
		info.Verb = collectionVerb(info.Verb, r.URL)
	}
	info.readSelectors(r.URL)
	return info
}

// after is the rest of a path behind its first n segments, trailing slash and all.
func after(rest string, n int) string {
	rest = strings.TrimLeft(rest, "/")
	for range n {
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return ""
		}
		rest = rest[i+1:]
	}
	return "/" + rest
}

func isNamespaceSubresource(group, part string) bool {
	return group == "" && (part == "status" || part == "finalize")
}

// KnownMethod says whether the server has a meaning for an HTTP method. Methods
// are case-sensitive (RFC 9110, section 9.1).
func KnownMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return true
	}
	return false
}

// methodVerb is a known method in lower case, "" for any other.
func methodVerb(method string) string {
	if KnownMethod(method) {
		return strings.ToLower(method)
	}
	return ""
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
	return methodVerb(method)
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
// that the field selector requires, if the path has none. As upstream, the
// name of a deletecollection is not noted: permission to delete a collection
// is never permission for one name.
func (i *Info) readSelectors(u *url.URL) {
	if i.Verb != "list" && i.Verb != "watch" && i.Verb != "deletecollection" || !mayHaveSelector(u.RawQuery) {
		return
	}
	q := u.Query()
	i.FieldSelector, i.LabelSelector = q.Get("fieldSelector"), q.Get("labelSelector")
	if i.Name != "" || i.Verb == "deletecollection" {
		return
	}
	sel, err := fields.ParseSelector(i.FieldSelector)
	if err != nil {
		return
	}
	if name, ok := sel.RequiresExactMatch("metadata.name"); ok && len(path.IsValidPathSegmentName(name)) == 0 {
		i.Name = name
	}
}

// mayHaveSelector says whether it is worth to parse a query: the names of
// parameters may be escaped.
func mayHaveSelector(query string) bool {
	return strings.Contains(query, "Selector=") || strings.Contains(query, "%")
}

// Flag reads a boolean of a query: present is true, unless it says 0 or false.
func Flag(q url.Values, key string) bool {
	v, ok := q[key]
	if !ok {
		return false
	}
	return len(v) == 0 || v[0] != "0" && !strings.EqualFold(v[0], "false")
}
