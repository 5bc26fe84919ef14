package budget

import "strings"

// maxMergeWork is the number of pairs of list elements that one strategic merge
// patch may compare: a few tenths of a second. A patch of 2,000 elements to a
// list of as many stays below.
const maxMergeWork = 10_000_000

// cheapPatch is the number of patched list elements up to which a patch is
// always allowed, however long the stored lists are.
const cheapPatch = 16

// MergeWork returns a 413 error for a strategic merge patch that would take too
// long. Each element of a patched list is searched in the stored list and in
// the list that sets the order of elements.
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

// lengths maps the path of field names to the number of list elements there.
// Lists in the elements of another list count together.
type lengths map[string]int

func (l lengths) total() int {
	sum := 0
	for _, n := range l {
		sum += n
	}
	return sum
}

// add adds the lists in value, which is at path.
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

// fieldOf returns the field that a key of a patch refers to: directives such as
// $setElementOrder/ports name it after the slash.
func fieldOf(name string) string {
	if strings.HasPrefix(name, "$") {
		if _, field, ok := strings.Cut(name, "/"); ok {
			return field
		}
	}
	return name
}
