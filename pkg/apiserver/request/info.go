package request

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Info is the meaning of a request's method and path.
type Info struct {
	// Verb is get, list, watch, create, update, patch, delete, deletecollection
	// or options for a resource, else the HTTP method in lower case. It is
	// empty if the server does not support the method, or not on this path;
	// such a request is answered with 405.
	Verb string
	Path string

	// IsResource is set if the path names an API resource. Otherwise the fields
	// below are empty.
	IsResource  bool
	Group       string
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	Name        string // the name in the path, else the one that the field selector of a list or watch requires
	Rest        string // the path after the subresource, with its leading slash

	// FieldSelector and LabelSelector are the selectors of a list, watch or
	// deletecollection, as sent.
	FieldSelector string
	LabelSelector string

	// Upgrade is set if the request switches protocols and goes to an aggregated API
	// server. Parse does not set it.
	Upgrade bool
}

// GVR returns the group, version and resource.
func (i *Info) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: i.Group, Version: i.Version, Resource: i.Resource}
}

// ReadOnly reports whether the request cannot change anything.
func (i *Info) ReadOnly() bool {
	switch i.Verb {
	case "get", "list", "watch", "head", "options":
		return true
	}
	return false
}

// SnapshotPath is the page that streams the store's snapshot.
const SnapshotPath = "/snapshot"

// LongRunning reports whether the request is a watch or a stream: it has no
// deadline and takes no seat.
func (i *Info) LongRunning() bool {
	if i.Upgrade || i.Verb == "watch" || !i.IsResource && i.Path == SnapshotPath {
		return true
	}
	switch i.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// Scope returns the scope label of metrics: resource, namespace, cluster, or ""
// for other paths.
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

// Parse parses the method and path of a request. It reads the query only where
// it turns a list into a watch or selects a single name. Handlers must serve
// exactly what Info describes, since that is what was authorized.
//
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
	info.Verb = ResourceVerb(r.Method)

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
		info.Verb = "" // these paths support only watching
	case info.Name == "":
		info.Verb = collectionVerb(info.Verb, r.URL)
	}
	info.readSelectors(r.URL)
	return info
}

// after returns the path behind its first n segments, with any trailing slash,
// or "" if there is nothing behind them.
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

// KnownMethod reports whether the server supports an HTTP method. Methods are
// case-sensitive (RFC 9110, section 9.1).
func KnownMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return true
	}
	return false
}

// methodVerb returns a supported method in lower case, "" for any other.
func methodVerb(method string) string {
	if KnownMethod(method) {
		return strings.ToLower(method)
	}
	return ""
}

// ResourceVerb returns the verb of an HTTP method on a single resource or a
// subresource, "" if the server does not support the method.
func ResourceVerb(method string) string {
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

// Method returns the HTTP method of a verb.
func Method(verb string) string {
	switch verb {
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "deletecollection":
		return http.MethodDelete
	case "list", "watch":
		return http.MethodGet
	}
	return strings.ToUpper(verb)
}

// collectionVerb returns the verb of a request without a name, given the verb
// that it would have with one.
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

// readSelectors sets the selectors and, if the path has no name, the single
// name that the field selector requires. As upstream, it does not set the name
// of a deletecollection: permission for one name is never permission to delete
// a collection.
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

// mayHaveSelector reports whether the query may contain a selector. The names
// of parameters may be escaped.
func mayHaveSelector(query string) bool {
	return strings.Contains(query, "Selector=") || strings.Contains(query, "%")
}

// Flag returns a boolean query parameter: true if it is present, unless its
// value is 0 or false.
func Flag(q url.Values, key string) bool {
	v, ok := q[key]
	if !ok {
		return false
	}
	return len(v) == 0 || v[0] != "0" && !strings.EqualFold(v[0], "false")
}
