package horizontalpodautoscaler

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/controller/loop"
)

// memory holds the history and the selector of each autoscaler. It is safe for concurrent use.
type memory struct {
	mu        sync.Mutex
	histories map[loop.Key]history
	selectors map[loop.Key]labels.Selector
}

func newMemory() *memory {
	return &memory{histories: map[loop.Key]history{}, selectors: map[loop.Key]labels.Selector{}}
}

// of returns the history of an autoscaler. A new one begins with the given recommendation.
func (m *memory) of(key loop.Key, first entry) history {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.histories[key]; !ok {
		m.histories[key] = history{recommended: []entry{first}}
	}
	return m.histories[key]
}

func (m *memory) recommend(key loop.Key, e entry, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.histories[key]
	h.recommended = note(h.recommended, e, keep)
	m.histories[key] = h
}

func (m *memory) change(key loop.Key, e entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.histories[key]
	h.changed = note(h.changed, e, remembered)
	m.histories[key] = h
}

func (m *memory) forget(key loop.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.histories, key)
	delete(m.selectors, key)
}

// selecting notes the selector of an autoscaler, and returns all autoscalers of its
// namespace whose selectors match a pod.
func (m *memory) selecting(key loop.Key, s labels.Selector, pods []*corev1.Pod) (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.selectors[key] = s
	for k, s := range m.selectors {
		if k.Namespace == key.Namespace && slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return s.Matches(labels.Set(p.Labels)) }) {
			all = append(all, k.String())
		}
	}
	slices.Sort(all)
	return all
}

// selector returns the selector of the target's pods, or why it cannot be used.
func (r *reconciler) selector(key loop.Key, scale *autoscalingv1.Scale) (labels.Selector, *refusal) {
	text := scale.Status.Selector
	if text == "" {
		return nil, &refusal{"SelectorRequired", "selector is required", "InvalidSelector", "the HPA target's scale is missing a selector"}
	}
	s, err := labels.Parse(text)
	if err != nil {
		message := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err)
		return nil, &refusal{"InvalidSelector", message, "InvalidSelector", message}
	}
	if all := r.memory.selecting(key, s, r.selected(key.Namespace, s)); len(all) > 1 {
		message := fmt.Sprintf("pods by selector %s are controlled by multiple HPAs: [%s]", text, strings.Join(all, " "))
		return nil, &refusal{"AmbiguousSelector", message, "AmbiguousSelector", message}
	}
	return s, nil
}

// selected returns the pods of a namespace that a selector matches.
func (r *reconciler) selected(namespace string, s labels.Selector) (out []*corev1.Pod) {
	for _, p := range r.pods.In(namespace) {
		if s.Matches(labels.Set(p.Labels)) {
			out = append(out, p)
		}
	}
	return out
}
