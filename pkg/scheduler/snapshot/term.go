package snapshot

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TermKind tells the four lists of pod affinity terms apart.
type TermKind int

// The lists of spec.affinity.
const (
	RequiredAffinity TermKind = iota
	RequiredAntiAffinity
	PreferredAffinity
	PreferredAntiAffinity
)

// Term is a parsed pod affinity term. It is immutable.
type Term struct {
	Kind        TermKind
	Weight      int32 // of preferred terms
	TopologyKey string

	id         string // equal for terms that mean the same
	namespaces []string
	anywhere   bool            // the namespace selector is empty: it selects all namespaces
	among      labels.Selector // of namespaces; nil if there is none
	selector   labels.Selector
}

// ID is equal for terms that mean the same.
func (t *Term) ID() string { return t.id }

// Matches reports whether the term selects pod, whose namespace has these labels.
func (t *Term) Matches(pod *corev1.Pod, namespace map[string]string) bool {
	in := t.anywhere || slices.Contains(t.namespaces, pod.Namespace) || t.among != nil && t.among.Matches(labels.Set(namespace))
	return in && t.selector.Matches(labels.Set(pod.Labels))
}

// termsOf parses the pod affinity and anti-affinity of pod.
func termsOf(pod *corev1.Pod) []*Term {
	if pod.Spec.Affinity == nil {
		return nil
	}
	var out []*Term
	required := func(kind TermKind, terms []corev1.PodAffinityTerm) {
		for i := range terms {
			out = append(out, newTerm(pod, kind, 0, &terms[i]))
		}
	}
	preferred := func(kind TermKind, terms []corev1.WeightedPodAffinityTerm) {
		for i := range terms {
			out = append(out, newTerm(pod, kind, terms[i].Weight, &terms[i].PodAffinityTerm))
		}
	}
	if a := pod.Spec.Affinity.PodAffinity; a != nil {
		required(RequiredAffinity, a.RequiredDuringSchedulingIgnoredDuringExecution)
		preferred(PreferredAffinity, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := pod.Spec.Affinity.PodAntiAffinity; a != nil {
		required(RequiredAntiAffinity, a.RequiredDuringSchedulingIgnoredDuringExecution)
		preferred(PreferredAntiAffinity, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return out
}

// newTerm parses a term of pod. An invalid selector selects nothing. matchLabelKeys and
// mismatchLabelKeys are ignored: the API server has merged them into the label selector.
func newTerm(pod *corev1.Pod, kind TermKind, weight int32, from *corev1.PodAffinityTerm) *Term {
	t := &Term{Kind: kind, Weight: weight, TopologyKey: from.TopologyKey, namespaces: slices.Clone(from.Namespaces), selector: parse(from.LabelSelector)}
	if from.NamespaceSelector != nil {
		t.among = parse(from.NamespaceSelector)
		t.anywhere = t.among.Empty()
	} else if len(t.namespaces) == 0 {
		t.namespaces = []string{pod.Namespace}
	}
	slices.Sort(t.namespaces)
	t.identify()
	return t
}

func (t *Term) identify() {
	among := "-"
	if t.among != nil {
		among = selectorID(t.among)
	}
	t.id = fmt.Sprintf("%d %d %q %s %s %s", t.Kind, t.Weight, t.TopologyKey, strings.Join(t.namespaces, ","), among, selectorID(t.selector))
}

// selectorID differs from String for selectors that select nothing.
func selectorID(s labels.Selector) string {
	if requirements, some := s.Requirements(); !some || len(requirements) == 0 && !s.Empty() {
		return "<none>"
	}
	return s.String()
}

func parse(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// resolved returns the term with the namespaces that its namespace selector selects listed by
// name.
func (t *Term) resolved(namespaces map[string]map[string]string) *Term {
	if t.among == nil || t.anywhere {
		return t
	}
	r := *t
	r.namespaces, r.among = slices.Clone(t.namespaces), nil
	for name, own := range namespaces {
		if t.among.Matches(labels.Set(own)) {
			r.namespaces = append(r.namespaces, name)
		}
	}
	slices.Sort(r.namespaces)
	r.namespaces = slices.Compact(r.namespaces)
	r.identify()
	return &r
}
