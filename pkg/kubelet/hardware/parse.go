package hardware

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// maxID is the highest id of a CPU or a node: more than any kernel supports. It
// bounds the size of a parsed list.
const maxID = 1<<16 - 1

// ParseList parses a list of ids in the kernel's form, like 0-3,8. The empty text is
// the empty set.
func ParseList(text string) (cpuset.CPUSet, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return cpuset.New(), nil
	}
	var ids []int
	seen := [maxID + 1]bool{}
	for _, part := range strings.Split(text, ",") {
		low, high, err := parseRange(part)
		if err != nil {
			return cpuset.CPUSet{}, fmt.Errorf("list of ids %q: %w", text, err)
		}
		for id := low; id <= high; id++ {
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return cpuset.New(ids...), nil
}

func parseRange(text string) (low, high int, err error) {
	from, to, isRange := strings.Cut(strings.TrimSpace(text), "-")
	if low, err = parseID(from); err != nil {
		return 0, 0, err
	}
	if high = low; isRange {
		if high, err = parseID(to); err != nil {
			return 0, 0, err
		}
	}
	if high < low {
		return 0, 0, fmt.Errorf("%q ends before it begins", text)
	}
	return low, high, nil
}

func parseID(text string) (int, error) {
	id, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not an id from 0 to %d", text, maxID)
	}
	return int(id), nil
}

// parseTotal returns MemTotal of a meminfo file in bytes. The lines of a NUMA node's
// file begin with "Node 0".
func parseTotal(text string) (int64, error) {
	for line := range strings.Lines(text) {
		_, rest, found := strings.Cut(line, "MemTotal:")
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, fmt.Errorf("unexpected line %q", line)
		}
		kb, err := strconv.ParseInt(fields[0], 10, 53)
		if err != nil || kb < 0 {
			return 0, fmt.Errorf("unexpected line %q", line)
		}
		return kb * 1024, nil
	}
	return 0, fmt.Errorf("no line MemTotal")
}

// parseDistances parses the distances from one node to all nodes, in the order of
// their ids.
func parseDistances(text string, nodes []int) (map[int]int, error) {
	fields := strings.Fields(text)
	if len(fields) != len(nodes) {
		return nil, fmt.Errorf("%d distances to %d nodes", len(fields), len(nodes))
	}
	out := map[int]int{}
	for i, f := range fields {
		d, err := strconv.ParseUint(f, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("distance %q: %w", f, err)
		}
		out[nodes[i]] = int(d)
	}
	return out, nil
}
