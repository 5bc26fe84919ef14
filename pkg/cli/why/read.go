package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Reader reads objects. Resources are named as on the command line: "pods",
// "deployments.apps". ErrNoResource stands for those that are not served.
type Reader interface {
	Get(ctx context.Context, resource, namespace, name string) (*Object, error)
	// List returns the objects that the selectors select; "" selects all.
	List(ctx context.Context, resource, namespace, labels, fields string) ([]*Object, error)
	// Warnings returns the server's warnings about the creation of such an
	// object, by a dry run.
	Warnings(ctx context.Context, obj *Object) ([]string, error)
}

// ErrNoResource is the error for a resource that the server does not serve.
type ErrNoResource struct{ Resource string }

func (e *ErrNoResource) Error() string { return e.Resource + ": the server does not serve it" }

// Bounds of a story.
const (
	maxRequests = 60
	maxOwners   = 5 // in a chain
	maxPods     = 3 // that are looked at closely, of those that are not ready
)

// story reads the facts about one object.
type story struct {
	ctx  context.Context
	r    Reader
	f    *Facts
	left int // requests
	err  error
	told map[string]bool // objects that tell has seen
}

// Read collects the facts about an object. It returns an error if the API does
// not answer; what is forbidden or missing is part of the facts.
func Read(ctx context.Context, r Reader, subject *Object, now time.Time) (*Facts, error) {
	f := &Facts{Subject: subject, Now: now, absent: map[string]bool{}, read: map[string]bool{}}
	s := &story{ctx: ctx, r: r, f: f, left: maxRequests, told: map[string]bool{}}
	s.tell(subject)
	s.owners(subject)
	return f, s.err
}

// tell adds an object to the story, once, and reads what belongs to it.
func (s *story) tell(o *Object) {
	key := nameOf(o) + " " + o.GetNamespace()
	if s.told[key] {
		return
	}
	s.told[key] = true
	s.f.story = append(s.f.story, o)
	s.eventsOf(o)
	if o.GetDeletionTimestamp() != nil {
		s.deleting(o)
	}
	if read := chapters()[o.GroupVersionKind().GroupKind().String()]; read != nil {
		read(s, o)
	}
}

// owners tells of the controllers above an object.
func (s *story) owners(o *Object) {
	for range maxOwners {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil {
			return
		}
		group, _, _ := strings.Cut(ref.APIVersion, "/")
		if !strings.Contains(ref.APIVersion, "/") {
			group = ""
		}
		owner := s.get(withGroup(strings.ToLower(ref.Kind), group), o.GetNamespace(), ref.Name)
		if owner == nil {
			return
		}
		if s.told[nameOf(owner)+" "+owner.GetNamespace()] {
			return
		}
		s.told[nameOf(owner)+" "+owner.GetNamespace()] = true
		s.f.story = append(s.f.story, owner)
		s.eventsOf(owner)
		o = owner
	}
}

func withGroup(name, group string) string {
	if group == "" {
		return name
	}
	return name + "." + group
}

// get reads an object; nil if there is none, or it cannot be read.
func (s *story) get(resource, namespace, name string) *Object {
	if !s.spend(resource) {
		return nil
	}
	o, err := s.r.Get(s.ctx, resource, namespace, name)
	if apierrors.IsNotFound(err) {
		s.f.absent[resource+" "+namespace+"/"+name] = true
		return nil
	}
	if !s.note(err, resource+" "+name, namespace) {
		return nil
	}
	return o
}

// also adds an object to the story's context. It ignores nil.
func (s *story) also(objects ...*Object) {
	for _, o := range objects {
		if o != nil {
			s.f.context = append(s.f.context, o)
		}
	}
}

// list reads a collection, or the part that the label selector selects.
func (s *story) list(resource, namespace, labels, fields string) []*Object {
	if !s.spend(resource) {
		return nil
	}
	all, err := s.r.List(s.ctx, resource, namespace, labels, fields)
	if !s.note(err, resource, namespace) {
		return nil
	}
	if labels == "" && fields == "" {
		s.f.read[resource+" "+namespace] = true
	}
	return all
}

// spend counts a request against the bound.
func (s *story) spend(resource string) bool {
	if s.err != nil {
		return false
	}
	if s.left == 0 {
		s.unread(fmt.Sprintf("%s and more (after %d requests)", resource, maxRequests))
		return false
	}
	s.left--
	return true
}

// note records the result of a request and reports whether it succeeded.
func (s *story) note(err error, what, namespace string) bool {
	if namespace != "" {
		what += " in namespace " + namespace
	}
	switch {
	case err == nil:
		return true
	case apierrors.IsForbidden(err):
		s.unread(what + " (forbidden)")
	case isUnserved(err):
		s.unread(what + " (not served)")
	case apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err), apierrors.IsTimeout(err):
		s.unread(what + " (" + err.Error() + ")")
	default:
		s.err = err
	}
	return false
}

func isUnserved(err error) bool {
	_, ok := err.(*ErrNoResource)
	return ok || apierrors.IsNotFound(err)
}

func (s *story) unread(what string) {
	if !slices.Contains(s.f.unread, what) {
		s.f.unread = append(s.f.unread, what)
	}
}

// eventsOf reads the events about an object, but not those about an earlier one
// of the same name. Events about cluster-scoped objects are in the namespace
// default; kubelets give a node's name as its UID.
func (s *story) eventsOf(o *Object) {
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	for _, e := range s.list("events", namespace, "", "involvedObject.kind="+o.GetKind()+",involvedObject.name="+o.GetName()) {
		uid, _, _ := unstructured.NestedString(e.Object, "involvedObject", "uid")
		static := o.GetAnnotations()[corev1.MirrorPodAnnotationKey] // of a mirror: kubelets' events are about the static pod
		if uid == "" || uid == string(o.GetUID()) || uid == static || o.GetKind() == "Node" {
			s.also(e)
		}
	}
}
