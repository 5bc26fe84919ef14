package rest

import (
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a resource that the server serves.
type Kind struct {
	schema.GroupVersionKind

	Resource   string // plural, as in the URL
	Singular   string
	ShortNames []string
	Categories []string
	Verbs      []string
	Namespaced bool
	Preferred  bool     // whether this is the server's preferred version of the group
	Parts      []string // subresources
}

// Path returns the URL path of an object, or of the collection if name is "".
// parts are a subresource and what follows it.
func (k *Kind) Path(namespace, name string, parts ...string) string {
	path := "/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		path = "/api/" + k.Version
	}
	if k.Namespaced && namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + k.Resource
	for _, part := range append([]string{name}, parts...) {
		if part != "" {
			path += "/" + url.PathEscape(part)
		}
	}
	return path
}

// String returns the kind as messages show it: "pod", "deployment.apps".
func (k *Kind) String() string { return withGroup(k.singular(), k.Group) }

// Plural returns the resource with its group: "pods", "deployments.apps".
func (k *Kind) Plural() string { return withGroup(k.Resource, k.Group) }

func withGroup(name, group string) string {
	if group == "" {
		return name
	}
	return name + "." + group
}

func (k *Kind) singular() string {
	if k.Singular != "" {
		return k.Singular
	}
	return strings.ToLower(k.Kind)
}

// Can reports whether the server supports the verb.
func (k *Kind) Can(verb string) bool { return slices.Contains(k.Verbs, verb) }

// matches reports whether a word names this kind. The word may have a group
// ("deployments.apps") or a version and a group ("deployments.v1.apps").
func (k *Kind) matches(word string) bool {
	name, rest, qualified := strings.Cut(strings.ToLower(word), ".")
	if qualified && rest != k.Group && rest != k.Version+"."+k.Group {
		return false
	}
	return name == k.Resource || name == k.singular() || name == strings.ToLower(k.Kind) || slices.Contains(k.ShortNames, name)
}
