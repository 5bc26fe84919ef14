package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Weights of findings. A finding that names what is missing or wrong weighs
// more than one that follows from it.
const (
	root   = 100 // the state of the object names the cause
	likely = 80  // the cause, if nothing heavier is found
	effect = 40  // follows from another object: a rollout that waits for its pods
	hint   = 20  // may play a part
)

// Finding is a possible cause.
type Finding struct {
	Weight int      `json:"weight"`  // the heavier, the more likely the cause
	Object string   `json:"object"`  // that the finding is about: "pod/web-1"
	More   int      `json:"more"`    // number of other objects with the same cause
	Cause  string   `json:"cause"`   // a sentence without a full stop
	Shown  []string `json:"shownBy"` // fields, conditions and events that show it
	Fix    string   `json:"fix"`     // a command, or what to change; may be ""
}

func found(weight int, format string, args ...any) Finding {
	return Finding{Weight: weight, Cause: fmt.Sprintf(format, args...)}
}

// by adds what shows the finding; empty texts are left out.
func (f Finding) by(shown ...string) Finding {
	for _, s := range shown {
		if s = oneLine(s); s != "" && !slices.Contains(f.Shown, s) {
			f.Shown = append(f.Shown, s)
		}
	}
	return f
}

func (f Finding) fix(format string, args ...any) Finding {
	f.Fix = fmt.Sprintf(format, args...)
	return f
}

// Report explains an object.
type Report struct {
	Object    string    `json:"object"`
	Namespace string    `json:"namespace,omitempty"`
	State     string    `json:"state"`
	Chain     []string  `json:"ownerChain,omitempty"` // from the outermost owner to the object
	Findings  []Finding `json:"findings"`             // the most likely cause first
	Unread    []string  `json:"unread,omitempty"`     // what could not be read, and why
}

// Explain applies the rules to the facts.
func Explain(f *Facts) Report {
	r := Report{Object: nameOf(f.Subject), Namespace: f.Subject.GetNamespace(), State: stateOf(f.Subject), Chain: f.chain(), Unread: f.unread}
	var all []Finding
	for _, o := range f.story {
		for _, rule := range rules() {
			if !rule.about(o) {
				continue
			}
			for _, finding := range rule.find(f, o) {
				finding.Object = nameOf(o)
				all = append(all, finding)
			}
		}
	}
	r.Findings = merge(all, r.Object)
	return r
}

// merge joins findings with the same cause, and sorts them by weight. Among
// equal weights those about the subject come first.
func merge(all []Finding, subject string) []Finding {
	at := map[string]int{}
	out := []Finding{}
	for _, f := range all {
		if i, ok := at[f.Cause]; ok {
			if out[i].Object != f.Object {
				out[i].More++
			}
			continue
		}
		at[f.Cause] = len(out)
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(b.Weight-a.Weight, rank(a, subject)-rank(b, subject))
	})
	return out
}

func rank(f Finding, subject string) int {
	if f.Object == subject {
		return 0
	}
	return 1
}

// maxText bounds a text that comes from the cluster.
const maxText = 300

// oneLine joins the lines of a text, without control characters, and shortens
// it to maxText bytes.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
