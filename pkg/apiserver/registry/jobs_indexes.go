package registry

import (
	"fmt"
	"strconv"
	"strings"
)

// interval is the indexes of a job from first to last, both inclusive.
type interval struct{ first, last int32 }

// countIndexes returns the number of indexes in a text such as "1,3-5,7". The indexes
// must be in increasing order and less than completions.
func countIndexes(text string, completions int32) (int32, error) {
	if text == "" {
		return 0, nil
	}
	total, last := int32(0), int32(-1)
	for part := range strings.SplitSeq(text, ",") {
		i, err := parseInterval(part, completions)
		if err != nil {
			return 0, err
		}
		if last >= i.first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, i.first)
		}
		total += i.last - i.first + 1
		last = i.last
	}
	return total, nil
}

func parseInterval(text string, completions int32) (interval, error) {
	first, last, isRange := strings.Cut(text, "-")
	if strings.Contains(last, "-") {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	x, err := parseIndex(first, completions)
	if err != nil || !isRange {
		return interval{x, x}, err
	}
	y, err := parseIndex(last, completions)
	if err == nil && x >= y {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", x, y)
	}
	return interval{x, y}, err
}

func parseIndex(text string, completions int32) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if n >= uint64(max(completions, 0)) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(n), nil
}

// overlap returns an index that is in both texts. It skips intervals that are not
// valid.
func overlap(a, b string, completions int32) (index int32, found bool) {
	as, bs := intervals(a, completions), intervals(b, completions)
	for len(as) > 0 && len(bs) > 0 {
		if as[0].first <= bs[0].last && bs[0].first <= as[0].last {
			return max(as[0].first, bs[0].first), true
		}
		if as[0].first <= bs[0].first {
			as = as[1:]
		} else {
			bs = bs[1:]
		}
	}
	return 0, false
}

// intervals returns the valid intervals of a text.
func intervals(text string, completions int32) []interval {
	var out []interval
	for part := range strings.SplitSeq(text, ",") {
		if i, err := parseInterval(part, completions); err == nil {
			out = append(out, i)
		}
	}
	return out
}
