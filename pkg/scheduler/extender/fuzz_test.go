package extender

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// says answers every request with a text.
type says string

func (s says) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(s)))}, nil
}

// FuzzResponses checks that no response makes an extender more than a filter: it leaves only
// nodes and evicts only pods that it may, and each node is either left or rejected.
func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		`{"NodeNames":["a"],"FailedNodes":{"b":"full"},"FailedAndUnresolvableNodes":{"b":"x"}}`, `{"Nodes":{"items":[{"metadata":{"name":"b"}}]}}`,
		`[{"Host":"a","Score":10}]`, `[{"Host":"a","Score":-9223372036854775808}]`, `{"Error":"x"}`, `null`, `{"Nodes":{"items":null}}`,
		`{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"v"}],"NumPDBViolations":-1}}}`, `{"NodeNameToMetaVictims":{"a":{"Pods":[null]},"b":null}}`,
	} {
		f.Add(seed)
	}
	victim, pod := prioritized("v", 1), prioritized("p", 5)
	on := func(node string, uid types.UID) *snapshot.Pod {
		if node == "a" && uid == victim.UID {
			return victim
		}
		return nil
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := New([]Config{{URLPrefix: "http://x", FilterVerb: "f", PrioritizeVerb: "p", PreemptVerb: "e", BindVerb: "b", Weight: maxWeight}}, says(text), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		left, rejected, err := l.Filter(t.Context(), pod.Pod, candidates("a", "b"))
		if err == nil && len(left)+len(rejected) != 2 {
			t.Errorf("%d nodes are left and %d rejected, of 2", len(left), len(rejected))
		}
		list := candidates("a", "b")
		l.Prioritize(t.Context(), pod.Pod, list)
		for _, c := range list {
			if c.Score < -1e15 || c.Score > 1e15 {
				t.Errorf("score %d", c.Score)
			}
		}
		options, err := l.Preempt(t.Context(), pod, []framework.Nomination{{Node: "a", Victims: []*snapshot.Pod{victim}}}, on)
		if err == nil && len(options) > 0 && (options[0].Node != "a" || len(options) > 1 || len(options[0].Victims) != 1) {
			t.Errorf("options %+v", options)
		}
		bind, _ := l.Binder()
		if err := bind(t.Context(), pod.Pod, "a"); err != nil && len(err.Error()) > 1000+len(text) {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
