package budget

import "strings"

// maxMergeWork is how many pairs of list elements one strategic merge patch may
// compare: a few tenths of a second. A patch of 2,000 elements to a list of as
// many stays below.
const maxMergeWork = 10_000_000

// cheapPatch is a number of list elements that no stored list makes costly.
const cheapPatch = 16

// MergeWork is a 413 for a strategic merge patch that would take too long: every
// element of a patched list is looked for in the stored list, and the order of
// elements is looked up in the list that gives it.
func MergeWork(stored, patch map[string]any) error {
	patched := lengths{}
	if patched.add("", patch); patched.total() <= cheapPatch {
		return nil
	}
	have := lengths{}
	have.add("", stored)
	work := 0
	for path, n := range patched {
		if work += n * (n + have[path]); work > maxMergeWork {
			return tooLarge("the patch compares more than %d pairs of list elements; replace the list or send a smaller patch", maxMergeWork)
		}
	}
	return nil
}

// lengths is how many elements lists have, by the names of the fields they
// stand in. Lists in the elements of another list count together.
type lengths map[string]int

func (l lengths) total() int {
	sum := 0
	for _, n := range l {
		sum += n
	}
	return sum
}

func (l lengths) add(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			switch v.(type) {
			case map[string]any, []any:
				l.add(path+"/"+fieldOf(name), v)
			}
		}
	case []any:
		l[path] += len(value)
		for _, v := range value {
			l.add(path, v)
		}
	}
}

// fieldOf is the field that a name in a patch speaks of: directives such as
// $setElementOrder/ports name it behind a slash.
func fieldOf(name string) string {
	if strings.HasPrefix(name, "$") {
		if _, field, ok := strings.Cut(name, "/"); ok {
			return field
		}
	}
	return name
}
