package podsecurity

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// containers are those of all three sorts.
func (s subject) containers() iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{s.spec.InitContainers, s.spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range s.spec.EphemeralContainers {
			if !yield((*corev1.Container)(&s.spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// pod is the pod's own security context, an empty one if it has none.
func (s subject) pod() *corev1.PodSecurityContext {
	if c := s.spec.SecurityContext; c != nil {
		return c
	}
	return &corev1.PodSecurityContext{}
}

// security is the container's, an empty one if it has none.
func security(c *corev1.Container) *corev1.SecurityContext {
	if c.SecurityContext != nil {
		return c.SecurityContext
	}
	return &corev1.SecurityContext{}
}

// culprits are those who do what is not allowed.
type culprits struct {
	pod        bool
	containers []string
}

func (c culprits) any() bool { return c.pod || len(c.containers) > 0 }

// String is `pod and containers "a", "b"`.
func (c culprits) String() string {
	var out []string
	if c.pod {
		out = append(out, "pod")
	}
	if len(c.containers) > 0 {
		out = append(out, named("container", c.containers))
	}
	return strings.Join(out, " and ")
}

// with lists the containers for which bad holds.
func (s subject) with(bad func(*corev1.Container) bool) []string {
	var names []string
	for c := range s.containers() {
		if bad(c) {
			names = append(names, c.Name)
		}
	}
	return names
}

// named is `container "a"` or `containers "a", "b"`.
func named(noun string, names []string) string {
	return plural(noun, len(names)) + " " + quote(names)
}

func quote(items []string) string {
	if len(items) == 0 {
		return ""
	}
	return `"` + strings.Join(items, `", "`) + `"`
}

func plural(noun string, n int) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// use is the verb for n who do it.
func use(n int) string {
	if n == 1 {
		return "uses"
	}
	return "use"
}

// values is a sorted list without doubles.
type values []string

func (v *values) add(text string) {
	if at, found := slices.BinarySearch(*v, text); !found {
		*v = slices.Insert(*v, at, text)
	}
}

func violation(reason, detail string, args ...any) *Violation {
	return &Violation{Reason: reason, Detail: fmt.Sprintf(detail, args...)}
}

func isTrue(b *bool) bool { return b != nil && *b }
