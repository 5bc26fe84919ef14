// Package frameworktest tests plugins of the scheduler with random pods and nodes, and checks
// what they declare to read.
package frameworktest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// TB is the part of testing.TB that CheckReads needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// CheckReads reports an error if the plugin's answers depend on something that its Reads does
// not return: it compares pairs of random pods that differ in one part, and expects equal
// answers if Reads returns equal values.
func CheckReads(t TB, plugin framework.Reader) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	same, different := 0, 0
	for range 40 {
		snap := snapshot.New()
		for range 30 {
			Change(r, snap)
		}
		for range 40 {
			pod := Pod(r, "pod")
			other := pod.DeepCopy()
			if r.IntN(4) > 0 {
				mutate(r, reflect.ValueOf(&other.Spec).Elem(), 1)
			} else {
				mutate(r, reflect.ValueOf(other).Elem(), 0)
			}
			a, b := snapshot.NewPod(pod), snapshot.NewPod(other)
			answers, others := Answers(plugin, snap, a), Answers(plugin, snap, b)
			if !slices.Equal(answers, others) {
				different++
			}
			if !slices.Equal(framework.AppendShape(nil, plugin, a), framework.AppendShape(nil, plugin, b)) {
				continue
			}
			same++
			if !slices.Equal(answers, others) {
				t.Errorf("plugin %s reads a field that Reads does not return:\n%s\n%v\n%s\n%v", plugin.Name(), &pod.Spec, answers, &other.Spec, others)
				return
			}
		}
	}
	if same == 0 || different == 0 {
		t.Errorf("plugin %s: %d pairs of pods of one shape, %d with different answers: the check shows nothing", plugin.Name(), same, different)
	}
}

// Answers returns the plugin's answers for each node of the snapshot as text.
func Answers(plugin framework.Reader, snap *snapshot.Snapshot, pod *snapshot.Pod) []string {
	snap.Derive(pod)
	var out []string
	say := func(n snapshot.Node, answer any) { out = append(out, fmt.Sprint(n.Name(), " ", answer)) }
	switch p := plugin.(type) {
	case framework.FilterPlugin:
		if ask := p.PreFilter(pod); ask != nil {
			forEach(snap, func(n snapshot.Node) { say(n, ask(n)) })
		}
	case framework.ClusterFilterPlugin:
		if f := p.PreFilter(pod); f != nil {
			update(snap, f)
			forEach(snap, func(n snapshot.Node) { say(n, f.Filter(n)) })
		}
	}
	switch p := plugin.(type) {
	case framework.ScorePlugin:
		if ask := p.PreScore(pod); ask != nil {
			forEach(snap, func(n snapshot.Node) { say(n, ask(n)) })
		}
	case framework.ClusterScorePlugin:
		if s := p.PreScore(pod); s != nil {
			update(snap, s)
			forEach(snap, func(n snapshot.Node) { say(n, score(snap, s)[n.Row()]) })
		}
	}
	return out
}

func forEach(snap *snapshot.Snapshot, do func(snapshot.Node)) {
	for row := range snap.Rows() {
		if n := snap.At(row); n.Exists() {
			do(n)
		}
	}
}

func update(snap *snapshot.Snapshot, u interface{ Update(snapshot.Node) }) {
	for row := range snap.Rows() {
		u.Update(snap.At(row))
	}
}

// score returns the scores of all nodes, by row.
func score(snap *snapshot.Snapshot, s framework.ClusterScore) map[int]int64 {
	var rows []int32
	forEach(snap, func(n snapshot.Node) { rows = append(rows, int32(n.Row())) })
	scores, out := make([]int64, len(rows)), map[int]int64{}
	s.Score(rows, scores)
	for i, row := range rows {
		out[int(row)] = scores[i]
	}
	return out
}
