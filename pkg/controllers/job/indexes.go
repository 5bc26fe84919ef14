package job

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// indexes is a set of completion indexes: intervals in increasing order that neither overlap
// nor touch.
type indexes []interval

// interval is the indexes from first to last, both inclusive.
type interval struct{ first, last int }

// parseIndexes reads a set such as "1,3-5,7". It drops indexes that are not below limit, and
// what it cannot parse.
func parseIndexes(text string, limit int) indexes {
	var out indexes
	for part := range strings.SplitSeq(text, ",") {
		a, b, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(a)
		if err != nil {
			continue
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(b); err != nil {
				continue
			}
		}
		if last = min(last, limit-1); first >= 0 && first <= last {
			out = append(out, interval{first, last})
		}
	}
	return out.normal()
}

// with returns the union of s and the indexes.
func (s indexes) with(more ...int) indexes {
	if len(more) == 0 {
		return s
	}
	out := slices.Clone(s)
	for _, i := range more {
		out = append(out, interval{i, i})
	}
	return out.normal()
}

// normal returns the set of the intervals of s, which it changes.
func (s indexes) normal() indexes {
	slices.SortFunc(s, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	out := s[:0]
	for _, next := range s {
		if n := len(out); n > 0 && next.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, next.last)
			continue
		}
		out = append(out, next)
	}
	return out
}

// find returns the interval that contains i.
func (s indexes) find(i int) (interval, bool) {
	at, exact := slices.BinarySearchFunc(s, i, func(v interval, i int) int { return cmp.Compare(v.first, i) })
	if !exact {
		at--
	}
	if at < 0 || i > s[at].last {
		return interval{}, false
	}
	return s[at], true
}

func (s indexes) has(i int) bool {
	_, ok := s.find(i)
	return ok
}

// total returns the number of indexes.
func (s indexes) total() int {
	n := 0
	for _, v := range s {
		n += v.last - v.first + 1
	}
	return n
}

func (s indexes) String() string {
	parts := make([]string, len(s))
	for i, v := range s {
		switch v.last - v.first {
		case 0:
			parts[i] = strconv.Itoa(v.first)
		case 1:
			parts[i] = fmt.Sprintf("%d,%d", v.first, v.last)
		default:
			parts[i] = fmt.Sprintf("%d-%d", v.first, v.last)
		}
	}
	return strings.Join(parts, ",")
}

// noIndex is the index of a pod that has none.
const noIndex = -1

// indexOf returns the completion index of a pod.
func indexOf(p *corev1.Pod) int {
	i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return noIndex
	}
	return i
}
