package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Object is an object in its wire form.
type Object = unstructured.Unstructured

// Facts are what Read has found out about an object.
type Facts struct {
	Subject *Object
	Now     time.Time

	story    []*Object       // the subject, and what may be at fault; rules look at each
	context  []*Object       // what rules look up, besides the story
	absent   map[string]bool // objects that were asked for and do not exist: "secrets ns/name"
	read     map[string]bool // collections that were read, or could not be: "pods ns"
	warnings []string        // what the server says to a dry run of the subject's creation
	unread   []string
}

// each returns the objects of a kind, in the story and in the context.
func each[T any](f *Facts, kind string) []*T {
	var out []*T
	for _, o := range slices.Concat(f.story, f.context) {
		if o.GetKind() == kind {
			out = append(out, as[T](o))
		}
	}
	return out
}

// as decodes an object. Fields of a wrong type stay empty.
func as[T any](o *Object) *T {
	t := new(T)
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, t)
	return t
}

// one returns an object by its name; nil if it was not read.
func one[T any](f *Facts, kind, namespace, name string) *T {
	if o := f.object(kind, namespace, name); o != nil {
		return as[T](o)
	}
	return nil
}

func (f *Facts) object(kind, namespace, name string) *Object {
	for _, o := range slices.Concat(f.story, f.context) {
		if o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name {
			return o
		}
	}
	return nil
}

// missing reports whether the API has said that an object does not exist.
func (f *Facts) missing(resource, namespace, name string) bool {
	return f.absent[resource+" "+namespace+"/"+name]
}

// knows reports whether all objects of a resource in a namespace were read.
func (f *Facts) knows(resource, namespace string) bool { return f.read[resource+" "+namespace] }

// events returns the events about an object with one of the reasons, or all,
// the latest first.
func (f *Facts) events(kind, name string, reasons ...string) []*corev1.Event {
	var out []*corev1.Event
	for _, e := range each[corev1.Event](f, "Event") {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && (len(reasons) == 0 || slices.Contains(reasons, e.Reason)) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b *corev1.Event) int { return lastSeen(b).Compare(lastSeen(a)) })
	return out
}

// event returns the latest of these events, nil if there is none.
func (f *Facts) event(kind, name string, reasons ...string) *corev1.Event {
	if all := f.events(kind, name, reasons...); len(all) > 0 {
		return all[0]
	}
	return nil
}

// said returns an event as evidence: reason, age and message; "" for nil.
func (f *Facts) said(e *corev1.Event) string {
	if e == nil {
		return ""
	}
	count := max(e.Count, 1)
	if e.Series != nil {
		count = e.Series.Count
	}
	times := ""
	if count > 1 {
		times = fmt.Sprintf(" x%d", count)
	}
	return fmt.Sprintf("event %s%s, %s ago: %s", e.Reason, times, f.age(lastSeen(e)), e.Message)
}

func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func (f *Facts) age(t time.Time) string { return duration.HumanDuration(f.Now.Sub(t)) }

// chain returns the names of the subject's controllers, from the outermost one
// to the subject.
func (f *Facts) chain() []string {
	out := []string{nameOf(f.Subject)}
	o := f.Subject
	for range maxOwners {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil {
			break
		}
		name := strings.ToLower(ref.Kind) + "/" + ref.Name
		next := f.uid(ref.UID)
		if next != nil {
			name = nameOf(next)
		}
		out = append(out, name)
		if next == nil {
			break
		}
		o = next
	}
	slices.Reverse(out)
	return out
}

func (f *Facts) uid(uid types.UID) *Object {
	for _, o := range slices.Concat(f.story, f.context) {
		if o.GetUID() == uid && uid != "" {
			return o
		}
	}
	return nil
}

// nameOf returns an object's name as commands take it: "deployment.apps/web".
func nameOf(o *Object) string {
	kind := strings.ToLower(o.GetKind())
	if group := o.GroupVersionKind().Group; group != "" {
		kind += "." + group
	}
	return kind + "/" + o.GetName()
}

// in returns the flag that selects a namespace, with a leading blank.
func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + namespace
}
