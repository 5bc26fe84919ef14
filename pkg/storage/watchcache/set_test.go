package watchcache

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// A set answers as the map that it is made of, and so do selectors, however many sets share what
// they hold.
func TestSetsAnswerAsMaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	word := func(most int) string { return strings.Repeat("x", r.IntN(3)*40) + fmt.Sprint(r.IntN(most)) }
	var shared texts
	for range 20_000 {
		from := map[string]string{}
		for range r.IntN(12) {
			from[word(30)] = word(3000)
		}
		key := "/registry/pods/" + word(50) + "/" + word(5000)
		s := shared.set(key, from)
		for name := range 30 {
			name := fmt.Sprint(name)
			want, ok := from[name]
			if got, has := s.Lookup(name); got != want || has != ok || s.Has(name) != ok || s.Get(name) != want {
				t.Fatalf("%v: %s is %q, %v", from, name, got, has)
			}
		}
		name, value := word(30), word(3000)
		byLabel, byField := labels.SelectorFromSet(labels.Set{name: value}), fields.OneTermNotEqualSelector(name, value)
		if byLabel.Matches(&s) != byLabel.Matches(labels.Set(from)) || byField.Matches(&s) != byField.Matches(fields.Set(from)) {
			t.Fatalf("%v: selectors of %s=%s differ", from, name, value)
		}
	}
	if len(shared.values) > mostTexts || len(shared.names) > mostTexts {
		t.Errorf("%d values and %d lists of names are kept", len(shared.values), len(shared.names))
	}
	for text := range shared.values {
		if len(text) > longestText {
			t.Errorf("a text of %d bytes is kept", len(text))
		}
	}
}

func TestSetsShareNames(t *testing.T) {
	var shared texts
	a := shared.set("", map[string]string{"app": "a", "tier": "web"})
	b := shared.set("", map[string]string{"tier": "web", "app": "b"})
	if c := shared.set("", map[string]string{"app": "a"}); a.names != b.names || a.names == c.names {
		t.Error("sets with the same names do not share them")
	}
	if none := shared.set("key", nil); none.Has("app") || none.names != nil {
		t.Error("an empty set holds something")
	}
}

func TestSetsAreMadeConcurrently(t *testing.T) {
	var shared texts
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 500 {
				value := fmt.Sprint(i % 50)
				s := shared.set("", map[string]string{"app": value, fmt.Sprint("of-", w%2): "x"})
				if s.Get("app") != value {
					t.Error("another value")
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkSet(b *testing.B) {
	from := map[string]string{"metadata.name": "web-7", "metadata.namespace": "shop", "spec.nodeName": "node-0042", "spec.restartPolicy": "Always", "spec.schedulerName": "default-scheduler",
		"spec.serviceAccountName": "default", "spec.hostNetwork": "false", "status.phase": "Running", "status.podIP": "10.0.0.7", "status.podIPs": "10.0.0.7", "status.nominatedNodeName": ""}
	var shared texts
	b.Run("make", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			shared.set("/registry/pods/shop/web-7", from)
		}
	})
	s, m := shared.set("/registry/pods/shop/web-7", from), fields.Set(from)
	selector := fields.OneTermEqualSelector("spec.nodeName", "node-0042")
	b.Run("match", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			selector.Matches(&s)
		}
	})
	b.Run("match a map", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			selector.Matches(m)
		}
	})
}
